//! The query of a request, read so that an error names the parameter.

use actix_web::{HttpRequest, web};

use super::answer::ApiFault;

/// Name and value of each parameter that an endpoint takes, in order; the token is not among them.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// The parameters of `request`, which may be those in `known`.
    ///
    /// # Errors
    /// 400 for another one: a filter with a typing error must not show everything.
    pub fn of(request: &HttpRequest, known: &[&str]) -> Result<Self, ApiFault> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(request.query_string())
            .map_err(|error| ApiFault::bad_parameter("query", error))?;
        let pairs: Vec<_> = pairs.into_inner().into_iter().filter(|(name, _)| name != "tkn").collect();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(ApiFault::bad_parameter(name, format!("unknown; there are {}", known.join(", ")))),
            None => Ok(Self(pairs)),
        }
    }

    /// Every value of `name`.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The value of `name`.
    ///
    /// # Errors
    /// 400 for one that is there twice.
    pub fn one(&self, name: &str) -> Result<Option<&str>, ApiFault> {
        match *self.all(name).as_slice() {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            _ => Err(ApiFault::bad_parameter(name, "may be given once")),
        }
    }

    /// The value of `name` as text of one's own.
    ///
    /// # Errors
    /// As [`Query::one`].
    pub fn text(&self, name: &str) -> Result<Option<String>, ApiFault> {
        Ok(self.one(name)?.map(str::to_owned))
    }

    /// The value of `name` as a number.
    ///
    /// # Errors
    /// As [`Query::one`], and 400 for what is no number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiFault> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| ApiFault::bad_parameter(name, format!("\"{text}\" is not a number from 0 up")))
    }

    /// The value of `name` as `true` or `false`; absent is false.
    ///
    /// # Errors
    /// As [`Query::one`], and 400 for something else.
    pub fn flag(&self, name: &str) -> Result<bool, ApiFault> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiFault::bad_parameter(name, "wants true or false")),
        }
    }
}
