//! `scrollback log verify --rebuild`.

use super::args::Place;
use super::fault::CliFault;
use super::out::Out;
use super::reach::Reach;
use crate::admin::inspect;
use crate::config::Environment;
use crate::events::EventLog;
use crate::events::sled_store::Access;
use crate::projections::rebuilding::Rebuild;

/// Makes the rows anew from the log, and says what was verified then.
pub fn rebuild(place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let directory = match Reach::of(place, Access::Write, environment)? {
        Reach::Directory(directory) => directory,
        Reach::Host(_) => {
            let text = "--rebuild: a running host keeps in memory what would be made anew: stop it, and try again then";
            return Err(CliFault::Failed(text.into()));
        }
    };
    let store = &directory.store;
    store.compact(&Rebuild::of(store)?)?;
    let verdict = inspect::verify(store, &mut |_| ());
    store.close_clean()?;
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&verdict)?
    } else {
        out.verdict(&verdict)?
    }
    out.flush()?;
    if verdict.ok { Ok(()) } else { Err(CliFault::Said) }
}
