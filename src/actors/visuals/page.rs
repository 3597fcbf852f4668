//! The page as it is stored: what was published, and a script of ours that tells the frame around it how high it is.
//!
//! The script stands first, behind the document type: nothing that a page leaves open (a comment, a script, a text area) can
//! swallow it there. What it tells is the page's word all the same: a frame takes it as a wish, up to `maxHeight`.

/// Tells the window around it `{type: "scrollback.height", height}`, in whole pixels, at first and whenever it changes.
pub const REPORTER: &str = concat!(
    "<script>(()=>{let last=0;const tell=()=>{const root=document.documentElement,body=document.body;",
    "const height=Math.ceil(Math.max(root.getBoundingClientRect().height,body?body.scrollHeight:0));",
    "if(height!==last){last=height;parent.postMessage({type:\"scrollback.height\",height},\"*\")}};",
    "if(parent!==window){new ResizeObserver(tell).observe(document.documentElement);addEventListener(\"load\",tell)}",
    "})()</script>"
);

/// The document type of pages that name none, so that browsers lay them out by today's rules.
const DOCTYPE: &str = "<!doctype html>";

/// The stored page of `html`.
pub fn with_reporter(html: &str) -> String {
    let (head, rest) = match end_of_doctype(html) {
        Some(end) => html.split_at(end),
        None => (DOCTYPE, html),
    };
    [head, REPORTER, rest].concat()
}

/// Where the document type ends, when `html` begins with one behind nothing but white space and comments.
fn end_of_doctype(html: &str) -> Option<usize> {
    let mut rest = html.strip_prefix('\u{feff}').unwrap_or(html);
    loop {
        rest = rest.trim_start();
        let Some(comment) = rest.strip_prefix("<!--") else { break };
        rest = comment.get(comment.find("-->")? + 3..)?;
    }
    let name = rest.get(.."<!doctype".len())?;
    if !name.eq_ignore_ascii_case("<!doctype") {
        return None;
    }
    Some(html.len() - rest.len() + rest.find('>')? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_stands_behind_the_document_type() {
        for doctype in ["<!doctype html>", "<!DOCTYPE html PUBLIC \"x\">", "\u{feff} <!-- a > b -->\n<!doctype html>"] {
            assert_eq!(with_reporter(&format!("{doctype}<p>x")), format!("{doctype}{REPORTER}<p>x"));
        }
    }

    #[test]
    fn a_fragment_gets_a_document_type() {
        for fragment in ["<p>x", "", "text", "<!-- open", "<!doctype", "<!-- a --><p>", "\u{1f600}<!doctype html>"] {
            assert_eq!(with_reporter(fragment), format!("{DOCTYPE}{REPORTER}{fragment}"));
        }
    }
}
