//! What may be published. Each refusal says what to change, in words that an agent can act on.

use super::page::with_reporter;
use crate::actors::command::{Refusal, RefusalKind};

/// UTF-16 units of the longest title.
const MAX_TITLE: usize = 200;
/// The lowest and the highest limit for a frame's height, and the one of visuals that name none, in pixels.
const MAX_HEIGHTS: (i64, i64, u32) = (80, 2_000, 600);
/// How many measured heights are taken.
const MAX_MEASURED: usize = 24;
/// The largest width or height that anybody can have measured.
const MAX_PIXELS: i64 = 100_000;

/// A visual as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewVisual {
    pub title: String,
    pub html: String,
    pub max_height: Option<i64>,
    /// `[width, height]`, as measured.
    pub heights: Option<Vec<(i64, i64)>>,
    pub turn_id: Option<String>,
}

/// A visual whose values are fine.
#[derive(Debug)]
pub struct Checked {
    pub title: String,
    pub page: String,
    pub max_height: u32,
    pub heights: Option<Vec<(u32, u32)>>,
    pub turn_id: Option<String>,
}

fn invalid_visual(problem: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::InvalidParams, "visual-invalid", problem)
}

impl NewVisual {
    /// The visual with its values checked and its page made, which is at most `max_page` bytes long.
    ///
    /// # Errors
    /// A refusal with `visual-invalid` or `visual-too-large`.
    pub fn checked(self, max_page: usize) -> Result<Checked, Refusal> {
        let Self { title, html, max_height, heights, turn_id } = self;
        check_title(&title)?;
        let max_height = checked_max_height(max_height)?;
        let heights = heights.map(checked_heights).transpose()?;
        if html.trim().is_empty() {
            return Err(invalid_visual("html: is empty: send a page"));
        }
        let page = with_reporter(&html);
        if page.len() > max_page {
            metrics::counter!("scrollback_limit_met_total", "limit" => "visual").increment(1);
            let room = max_page.saturating_sub(page.len() - html.len());
            let text = format!(
                "html: has {} bytes, and a page has at most {room}: make it smaller, such as by smaller images or less data",
                html.len()
            );
            return Err(Refusal::new(RefusalKind::Unavailable, "visual-too-large", text));
        }
        Ok(Checked { title, page, max_height, heights, turn_id })
    }
}

fn check_title(title: &str) -> Result<(), Refusal> {
    let units = title.encode_utf16().count();
    if title.trim().is_empty() {
        return Err(invalid_visual("title: is empty: say in a few words what is shown"));
    }
    if units > MAX_TITLE {
        let text = format!("title: has {units} UTF-16 units, and at most {MAX_TITLE} are taken: shorten it");
        return Err(invalid_visual(text));
    }
    Ok(())
}

fn checked_max_height(wanted: Option<i64>) -> Result<u32, Refusal> {
    let (low, high, default) = MAX_HEIGHTS;
    let Some(height) = wanted else { return Ok(default) };
    match u32::try_from(height) {
        Ok(fine) if (low..=high).contains(&height) => Ok(fine),
        _ => Err(invalid_visual(format!("maxHeight: is {height}: use {low} to {high}, or leave it out"))),
    }
}

fn checked_heights(heights: Vec<(i64, i64)>) -> Result<Vec<(u32, u32)>, Refusal> {
    if heights.len() > MAX_MEASURED {
        let text = format!("heights: are {}, and at most {MAX_MEASURED} are taken: leave some out", heights.len());
        return Err(invalid_visual(text));
    }
    let pixels = |value: i64| u32::try_from(value).ok().filter(|_| (1..=MAX_PIXELS).contains(&value));
    let pair = |(width, height)| {
        let text = || format!("heights: [{width}, {height}] is no width and height: use pixels from 1 to {MAX_PIXELS}");
        pixels(width).zip(pixels(height)).ok_or_else(|| invalid_visual(text()))
    };
    heights.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::super::page::REPORTER;
    use super::*;

    fn visual() -> NewVisual {
        NewVisual { title: "T".into(), html: "<p>x".into(), ..NewVisual::default() }
    }

    fn refused(visual: NewVisual) -> String {
        let refusal = visual.checked(10_000).unwrap_err();
        assert_eq!((refusal.kind, refusal.code), (RefusalKind::InvalidParams, "visual-invalid"));
        refusal.message
    }

    #[test]
    fn a_title_has_1_to_200_utf_16_units() {
        let titled = |title: String| NewVisual { title, ..visual() };
        assert!(titled("x".repeat(200)).checked(10_000).is_ok());
        assert!(titled("\u{1f600}".repeat(100)).checked(10_000).is_ok());
        assert!(refused(titled("x".repeat(201))).contains("at most 200"));
        assert!(refused(titled("\u{1f600}".repeat(100) + "x")).contains("201"));
        assert!(refused(titled(String::new())).starts_with("title:"));
        assert!(refused(titled(" \n".into())).starts_with("title:"));
    }

    #[test]
    fn a_frame_is_80_to_2000_pixels_high_at_most() {
        let high = |height| NewVisual { max_height: Some(height), ..visual() };
        for fine in [80, 2_000] {
            assert_eq!(high(fine).checked(10_000).unwrap().max_height, u32::try_from(fine).unwrap());
        }
        for wrong in [79, 2_001, 0, -80, i64::MAX, i64::MIN] {
            assert!(refused(high(wrong)).contains("80 to 2000"), "{wrong}");
        }
        assert_eq!(visual().checked(10_000).unwrap().max_height, 600);
    }

    #[test]
    fn at_most_24_measured_heights_are_taken_and_each_is_one() {
        let measured = |heights| NewVisual { heights: Some(heights), ..visual() };
        assert_eq!(measured(vec![(320, 400); 24]).checked(10_000).unwrap().heights.unwrap().len(), 24);
        assert!(refused(measured(vec![(320, 400); 25])).contains("at most 24"));
        for wrong in [(0, 1), (1, 0), (-1, 5), (5, 100_001)] {
            assert!(refused(measured(vec![wrong])).starts_with("heights:"), "{wrong:?}");
        }
    }

    #[test]
    fn a_page_is_measured_as_it_is_stored() {
        let stored = |html: String, max| NewVisual { html, ..visual() }.checked(max);
        let html = "<!doctype html><p>x".to_owned();
        let whole = html.len() + REPORTER.len();
        assert_eq!(stored(html.clone(), whole).unwrap().page.len(), whole);
        let refusal = stored(html.clone(), whole - 1).unwrap_err();
        assert_eq!((refusal.kind, refusal.code), (RefusalKind::Unavailable, "visual-too-large"));
        assert!(refusal.message.contains(&format!("at most {}", html.len() - 1)), "{refusal}");
        assert!(refused(NewVisual { html: " ".into(), ..visual() }).starts_with("html:"));
    }
}
