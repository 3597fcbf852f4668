//! `/api/users`: the people, their roles, grants and tokens.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::answer::{Admitted, ApiFault};
use crate::actors::people::PeopleChange;
use crate::projections::people::{Grant, Role};

/// Roles and grants that are given or taken.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default)]
    pub grants: Vec<Grant>,
}

impl Granted {
    /// Gives them to somebody.
    pub fn give(self, name: String) -> PeopleChange {
        PeopleChange::Grant { name, roles: self.roles, grants: self.grants }
    }

    /// Takes them from somebody.
    pub fn take(self, name: String) -> PeopleChange {
        PeopleChange::Revoke { name, roles: self.roles, grants: self.grants }
    }
}

/// A new person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    pub name: String,
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// After which time the token ends, such as `"30d"`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time")]
    pub expires: Option<Duration>,
}

impl NewUser {
    /// Adds them.
    pub fn add(self) -> PeopleChange {
        let Self { name, roles, grants, expires } = self;
        PeopleChange::Add { name, roles, grants, expires }
    }
}

/// A new token.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Whether the tokens before end.
    #[serde(default)]
    pub replace: bool,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time")]
    pub expires: Option<Duration>,
}

impl NewToken {
    /// Makes it for somebody.
    pub fn make(self, name: String) -> PeopleChange {
        PeopleChange::Token { name, replace: self.replace, expires: self.expires }
    }
}

/// A time as people write it.
mod time {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(&humantime::format_duration(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        humantime::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
    }
}

/// `GET /api/users`: a list of `{name, principal, roles, grants, tokens}`.
pub async fn list(admitted: Admitted) -> HttpResponse {
    HttpResponse::Ok().json(admitted.admin.host.people())
}

/// `POST /api/users`: a new person; the answer has the token, this once.
pub async fn add(admitted: Admitted, asked: web::Json<NewUser>) -> Result<HttpResponse, ApiFault> {
    changed(&admitted, asked.into_inner().add()).await
}

/// `POST /api/users/{name}/grant`.
pub async fn grant(
    admitted: Admitted,
    name: web::Path<String>,
    asked: web::Json<Granted>,
) -> Result<HttpResponse, ApiFault> {
    changed(&admitted, asked.into_inner().give(name.into_inner())).await
}

/// `POST /api/users/{name}/revoke`.
pub async fn revoke(
    admitted: Admitted,
    name: web::Path<String>,
    asked: web::Json<Granted>,
) -> Result<HttpResponse, ApiFault> {
    changed(&admitted, asked.into_inner().take(name.into_inner())).await
}

/// `POST /api/users/{name}/token`: one more token, or one instead of all others; the answer has it, this once.
pub async fn token(
    admitted: Admitted,
    name: web::Path<String>,
    asked: web::Json<NewToken>,
) -> Result<HttpResponse, ApiFault> {
    changed(&admitted, asked.into_inner().make(name.into_inner())).await
}

/// `DELETE /api/users/{name}`: answers who it was.
pub async fn remove(admitted: Admitted, name: web::Path<String>) -> Result<HttpResponse, ApiFault> {
    changed(&admitted, PeopleChange::Remove { name: name.into_inner() }).await
}

async fn changed(admitted: &Admitted, change: PeopleChange) -> Result<HttpResponse, ApiFault> {
    let told = admitted.admin.host.change_people(&admitted.who, change).await?;
    // It may hold a token.
    Ok(HttpResponse::Ok().insert_header(("Cache-Control", "no-store")).json(told))
}
