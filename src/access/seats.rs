//! How many connections there are, in all and of one person: sockets, and live streams of events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;

/// The seats that connections take.
pub struct Seats {
    taken: Mutex<Taken>,
    in_all: usize,
    of_one: usize,
}

#[derive(Default)]
struct Taken {
    in_all: usize,
    by_principal: HashMap<Arc<str>, usize>,
}

/// A connection's seat; free again when it is dropped.
pub struct Seat {
    seats: Arc<Seats>,
    principal: Arc<str>,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("the host has all the connections that it takes")]
    InAll,
    #[error("you have all the connections that one may have")]
    OfOne,
}

impl Full {
    /// 503 or 429.
    pub fn status(self) -> StatusCode {
        match self {
            Full::InAll => StatusCode::SERVICE_UNAVAILABLE,
            Full::OfOne => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// The same as an answer, with what to do.
    pub fn response(self) -> HttpResponse {
        let body = serde_json::json!({ "code": "limit-exceeded", "message": self.to_string() });
        HttpResponse::build(self.status()).insert_header(("retry-after", "10")).json(body)
    }
}

impl Seats {
    pub fn new(in_all: usize, of_one: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), in_all, of_one })
    }

    /// Takes a seat for a connection of `principal`.
    ///
    /// # Errors
    /// [`Full`] when there is none.
    pub fn take(self: &Arc<Self>, principal: &Arc<str>) -> Result<Seat, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.in_all >= self.in_all {
            metrics::counter!("scrollback_limit_met_total", "limit" => "connections").increment(1);
            return Err(Full::InAll);
        }
        let of_one = taken.by_principal.entry(Arc::clone(principal)).or_default();
        if *of_one >= self.of_one {
            metrics::counter!("scrollback_limit_met_total", "limit" => "connections_of_one").increment(1);
            return Err(Full::OfOne);
        }
        *of_one += 1;
        taken.in_all += 1;
        metrics::gauge!("scrollback_connections").increment(1.0);
        Ok(Seat { seats: Arc::clone(self), principal: Arc::clone(principal) })
    }
}

impl Seats {
    /// Who has seats, and how many.
    pub fn by_principal(&self) -> Vec<(Arc<str>, usize)> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.by_principal.iter().map(|(principal, count)| (Arc::clone(principal), *count)).collect()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.in_all = taken.in_all.saturating_sub(1);
        let left = taken.by_principal.get_mut(&self.principal).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == Some(0) {
            taken.by_principal.remove(&self.principal);
        }
        metrics::gauge!("scrollback_connections").decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_counted_in_all_and_of_one_and_given_back() {
        let seats = Seats::new(3, 2);
        let (a, b): (Arc<str>, Arc<str>) = ("user:a".into(), "user:b".into());
        let first = seats.take(&a).ok().unwrap();
        let second = seats.take(&a).ok().unwrap();
        assert_eq!(seats.take(&a).err(), Some(Full::OfOne));
        let third = seats.take(&b).ok().unwrap();
        let mut taken = seats.by_principal();
        taken.sort();
        assert_eq!(taken, [(a.clone(), 2), (b.clone(), 1)]);
        assert_eq!(seats.take(&b).err(), Some(Full::InAll));
        drop((first, third));
        assert!(seats.take(&a).is_ok());
        drop(second);
        assert!(seats.taken.lock().unwrap().by_principal.is_empty());
    }
}
