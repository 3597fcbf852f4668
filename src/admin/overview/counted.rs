//! What the process counted, read back from the text that it gives to Prometheus: so that a page and a monitor say the same.

use std::collections::BTreeMap;

/// The values of one moment, by name with its labels, as the text has them.
#[derive(Debug, Default)]
pub struct Counted(BTreeMap<String, f64>);

impl Counted {
    /// The values in `text`.
    pub fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.rsplit_once(' '));
        Self(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// The value of `name`; 0 for what was not counted yet.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().filter(|value| value.is_finite()).unwrap_or(0.0)
    }

    /// The values of the one label of `name`, and what was counted under each.
    pub fn by_label<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> + 'a {
        let of = move |(key, value): (&'a String, &f64)| {
            let label = key.strip_prefix(name)?.strip_prefix('{')?.strip_suffix("\"}")?.split_once("=\"")?.1;
            Some((label, *value))
        };
        self.0.iter().filter_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_by_label() {
        let text = "# TYPE a counter\na_total 5\n\nlimit_total{limit=\"busy\"} 2\nlimit_total{limit=\"chats\"} 1\n\
                    s{quantile=\"0.5\"} 0.25\ns{quantile=\"0.9\"} NaN\n";
        let counted = Counted::of(text);
        assert_eq!((counted.get("a_total"), counted.get("none")), (5.0, 0.0));
        assert_eq!(counted.by_label("limit_total").collect::<Vec<_>>(), [("busy", 2.0), ("chats", 1.0)]);
        assert_eq!((counted.get("s{quantile=\"0.5\"}"), counted.get("s{quantile=\"0.9\"}")), (0.25, 0.0));
    }
}
