//! The calls of tools that a model makes, put together from the pieces that they come in.

use serde_json::Value;

use super::history::Call;
use super::wire::CallDelta;

/// The calls of one answer, as far as they have come.
#[derive(Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The index that the endpoint gave each of them.
    indexes: Vec<Option<usize>>,
}

impl Calls {
    /// Adds a piece. The place and the name of a call, when its name has come.
    pub fn add(&mut self, delta: CallDelta) -> Option<(usize, String)> {
        let function = delta.function.unwrap_or_default();
        let id = delta.id.filter(|id| !id.is_empty());
        let at = match self.place(delta.index, id.as_deref()) {
            Some(at) => at,
            None => {
                let id = id.unwrap_or_else(|| format!("call_{}", ulid::Ulid::new()));
                self.calls.push(Call { id, ..Call::default() });
                self.indexes.push(delta.index);
                self.calls.len() - 1
            }
        };
        let call = self.calls.get_mut(at)?;
        call.arguments.push_str(function.arguments.as_deref().unwrap_or_default());
        let name = function.name.filter(|name| call.name.is_empty() && !name.is_empty())?;
        call.name.clone_from(&name);
        Some((at, name))
    }

    /// Where a piece belongs. Some endpoints give every call the index 0 and an id of its own, others no index at all.
    fn place(&self, index: Option<usize>, id: Option<&str>) -> Option<usize> {
        match (index, id) {
            (_, Some(id)) => self.calls.iter().position(|call| call.id == id),
            (Some(_), None) => self.indexes.iter().rposition(|known| *known == index),
            (None, None) => self.calls.len().checked_sub(1),
        }
    }

    /// All of them, complete, in the order of their places. What has no name is none.
    pub fn finish(self) -> Vec<Call> {
        self.calls.into_iter().filter(|call| !call.name.is_empty()).collect()
    }
}

/// The arguments of a call: a JSON object, or what is wrong with them, for the model to mend.
pub(super) fn arguments(text: &str) -> Result<serde_json::Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(serde_json::Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments are no JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(deltas: Value) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for delta in deltas.as_array().unwrap() {
            calls.add(serde_json::from_value(delta.clone()).unwrap());
        }
        calls.finish().into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.into(), name.into(), arguments.into())
    }

    #[test]
    fn pieces_find_their_call_by_index_by_id_or_by_order() {
        let by_index = json!([
            { "index": 0, "id": "a", "function": { "name": "x", "arguments": "" } },
            { "index": 1, "id": "b", "function": { "name": "y", "arguments": "{" } },
            { "index": 0, "function": { "arguments": "{}" } }, { "index": 1, "function": { "arguments": "}" } },
        ]);
        assert_eq!(of(by_index), [call("a", "x", "{}"), call("b", "y", "{}")]);
        let one_index = json!([
            { "index": 0, "id": "a", "function": { "name": "x", "arguments": "{}" } },
            { "index": 0, "id": "b", "function": { "name": "y", "arguments": "{" } },
            { "index": 0, "function": { "arguments": "}" } },
        ]);
        assert_eq!(of(one_index), [call("a", "x", "{}"), call("b", "y", "{}")]);
        let no_index = json!([
            { "id": "a", "function": { "name": "x" } }, { "id": "", "function": { "arguments": "{}" } }, { "id": "b" },
        ]);
        assert_eq!(of(no_index), [call("a", "x", "{}")]);
        assert_eq!(of(json!([{ "function": { "name": "x" } }])).len(), 1);
    }

    #[test]
    fn arguments_are_an_object_or_a_problem() {
        assert_eq!(arguments(" ").unwrap().len(), 0);
        assert_eq!(arguments("{\"a\":1}").unwrap().len(), 1);
        assert!(arguments("[]").is_err() && arguments("{\"a\"").is_err());
    }
}
