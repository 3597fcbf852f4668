//! A reading of the log in pages, ascending.
//!
//! A page ends at a number of events or bytes, so a reader holds no more than that, and no lock or iterator of the store
//! between two pages.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::EventFilter;
use crate::events::channel::ROOT;
use crate::events::{Channel, ChannelId, ChannelKind, ChannelRow, LogFault, Record, ServerSeq, Store};
use crate::projections::{FoldFault, catalogue};

/// Events of one page, whether they are wanted or not.
const PAGE_EVENTS: usize = 2_048;
/// Bytes of actions of one page.
const PAGE_BYTES: usize = 256 * 1024;

/// Events that a page has room for from its beginning.
const PAGE_ROOM: usize = 1_024;

/// Which channels are read.
#[derive(Debug, Clone)]
pub enum Scope {
    All,
    Channels(Vec<ChannelId>),
}

/// The channel that is stored under `uri`.
///
/// # Errors
/// [`FoldFault`] when its row cannot be read.
pub fn find_channel(store: &dyn Store, uri: &str) -> Result<Option<(Channel, ChannelId)>, FoldFault> {
    Ok(channel_row(store, uri)?.map(|row| (Channel::from(uri), ChannelId(row.id))))
}

/// The row of the channel `uri`. The root is there before it has one.
pub(super) fn channel_row(store: &dyn Store, uri: &str) -> Result<Option<ChannelRow>, FoldFault> {
    if uri == ROOT {
        return Ok(Some(ChannelRow { id: ChannelId::ROOT.0, kind: ChannelKind::Root, session: 0 }));
    }
    catalogue::channel(store, uri)
}

/// Whether a channel may be shown to who reads. Asked once a page and channel, so that what is taken away stops.
pub type Reader = Arc<dyn Fn(&Channel) -> bool + Send + Sync>;

/// Where a reading stands.
#[derive(Clone)]
pub struct Reading {
    scope: Scope,
    filter: EventFilter,
    /// `None`: who reads may read everything.
    reader: Option<Reader>,
    after: ServerSeq,
    left: u64,
}

impl Reading {
    /// A reading of what `filter` wants of `scope` and `reader` may read, from its first event on.
    pub fn new(scope: Scope, filter: EventFilter, reader: Option<Reader>) -> Self {
        Self { scope, after: filter.after, left: filter.limit.unwrap_or(u64::MAX), filter, reader }
    }

    /// Everything at or before this number was read.
    pub fn reached(&self) -> ServerSeq {
        self.after
    }

    /// How many events are still wanted.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing can follow, however long the log grows.
    pub fn is_over(&self) -> bool {
        self.left == 0 || self.filter.before.is_some_and(|before| self.after.saturating_add(1) >= before)
    }

    /// The wanted events of the next page up to what is on disk now, or `None` where there is none left. A page may be
    /// empty and be followed by one that is not.
    ///
    /// # Errors
    /// [`LogFault`] when an event cannot be read; those before it on the page are not returned.
    pub fn next_page(&mut self, store: &dyn Store) -> Result<Option<Vec<Record>>, LogFault> {
        let newest = store.tail();
        let upto = self.filter.before.map_or(newest, |before| newest.min(before.saturating_sub(1)));
        if self.left == 0 || self.after >= upto {
            return Ok(None);
        }
        let (records, reached) = match &self.scope {
            Scope::All => page(self.after, upto, PAGE_EVENTS, PAGE_BYTES, |visit| store.scan(self.after, upto, visit))?,
            Scope::Channels(channels) => merged(store, channels, self.after, upto)?,
        };
        self.after = reached;
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut wanted = records;
        // In place: a page of records is moved no more than it must be.
        let mut known: HashMap<ChannelId, bool> = HashMap::new();
        let mut may_read = |record: &Record| match &self.reader {
            None => true,
            Some(reader) => *known.entry(record.channel_id).or_insert_with(|| reader(&record.channel)),
        };
        wanted.retain(|record| self.filter.wants(record) && may_read(record));
        wanted.truncate(left);
        self.left = self.left.saturating_sub(wanted.len() as u64);
        Ok(Some(wanted))
    }
}

type Visit<'a> = &'a mut dyn FnMut(Record) -> ControlFlow<()>;

/// The events that `scan` visits until the page is full, and up to where the line was read with them.
fn page(
    after: ServerSeq,
    upto: ServerSeq,
    events: usize,
    bytes: usize,
    scan: impl FnOnce(Visit<'_>) -> Result<(), LogFault>,
) -> Result<(Vec<Record>, ServerSeq), LogFault> {
    let mut records: Vec<Record> = Vec::with_capacity(events.min(PAGE_ROOM));
    let (mut size, mut is_full) = (0, false);
    scan(&mut |record| {
        size += record.action.len();
        records.push(record);
        is_full = records.len() >= events || size >= bytes;
        if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let last = records.last().map_or(after, |record| record.seq);
    Ok((records, if is_full { last } else { upto }))
}

/// One page of several channels, in the order of the line. Each channel gives a share of the page; what lies beyond the
/// shortest one is read again with the next page.
fn merged(
    store: &dyn Store,
    channels: &[ChannelId],
    after: ServerSeq,
    upto: ServerSeq,
) -> Result<(Vec<Record>, ServerSeq), LogFault> {
    if let [channel] = channels {
        return page(after, upto, PAGE_EVENTS, PAGE_BYTES, |visit| store.scan_channel(*channel, after, upto, visit));
    }
    let share = |whole: usize| (whole / channels.len().max(1)).max(1);
    let mut all = Vec::new();
    let mut reached = upto;
    for channel in channels {
        let (records, end) = page(after, reached, share(PAGE_EVENTS), share(PAGE_BYTES), |visit| {
            store.scan_channel(*channel, after, reached, visit)
        })?;
        reached = reached.min(end);
        all.extend(records);
    }
    all.retain(|record| record.seq <= reached);
    all.sort_unstable_by_key(|record| record.seq);
    Ok((all, reached))
}
