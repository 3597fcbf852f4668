//! Every link leads somewhere, and every document can be found.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::pages::{self, Page, page, root};

/// The file of this repository that `link` in `page` names, and the anchor in it.
fn target(page: &Page, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor.to_owned())));
    if file.is_empty() {
        return Some((page.path.clone(), anchor));
    }
    let folder = page.path.parent().unwrap_or(Path::new(""));
    Some((tidy(&folder.join(file)), anchor))
}

fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(tidied.pop()),
            Component::CurDir => {}
            other => tidied.push(other),
        }
    }
    tidied
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut dead = Vec::new();
    for page in pages::all() {
        for link in page.links() {
            let Some((file, anchor)) = target(&page, &link) else { continue };
            let is_there = root().join(&file).exists();
            let has_heading = anchor.is_none_or(|anchor| {
                file.extension().is_some_and(|ending| ending == "md")
                    && is_there
                    && pages::page(file.to_str().unwrap()).anchors().contains(&anchor)
            });
            if !is_there || !has_heading {
                dead.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere: {dead:#?}");
}

#[test]
fn every_document_is_linked_from_the_readme_or_the_architecture() {
    let hubs = [page("README.md"), page("docs/architecture.md")];
    let linked: BTreeSet<PathBuf> =
        hubs.iter().flat_map(|hub| hub.links().into_iter().filter_map(|link| Some(target(hub, &link)?.0))).collect();
    let documents = pages::all().into_iter().map(|page| page.path).filter(|path| path.starts_with("docs"));
    let lost: Vec<PathBuf> = documents.filter(|path| !linked.contains(path)).collect();
    assert!(lost.is_empty(), "nothing leads to {lost:?}");
}
