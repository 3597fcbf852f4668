//! An export or a part of a backup that somebody hands in: lines of JSON.

use std::io::BufReader;

use scrollback::backup::incoming::Lines;
use scrollback::backup::line::Line;

pub fn run(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        comes_back(line);
    }
    is_read_to_its_end_or_refused(data);
}

/// What is taken for a line says the same when it is written again.
fn comes_back(bytes: &[u8]) {
    let Ok(line) = Line::parse(bytes) else { return };
    let Ok(written) = line.to_bytes() else { return };
    let written = written.strip_suffix(b"\n").expect("a line has an end");
    assert!(!written.contains(&b'\n'));
    assert_eq!(Line::parse(written), Ok(line));
}

/// However it is cut, it is refused by the line where that is noticed, or was all there.
fn is_read_to_its_end_or_refused(data: &[u8]) {
    let mut lines = Lines::of("fuzzed".into(), BufReader::with_capacity(16, data));
    let mut taken = 0u64;
    let read = lines.header().and_then(|_| {
        lines.rest(|_, _| {
            taken += 1;
            Ok(())
        })
    });
    if read.is_ok() {
        assert_eq!(taken + 1, data.iter().filter(|byte| **byte == b'\n').count() as u64);
    }
}
