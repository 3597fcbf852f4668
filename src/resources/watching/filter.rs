//! Which changes a watch wants: globs, or paths, relative to its root. Pure.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::resources::ResourceFault;

/// Patterns of one watch, at most.
const MAX_PATTERNS: usize = 1_000;

/// Which changes a watch wants.
#[derive(Debug)]
pub struct Filter {
    includes: Option<GlobSet>,
    excludes: GlobSet,
}

impl Filter {
    /// Reads the patterns. One without a slash in front or inside counts at every depth; a path stands for what lies in it, too.
    ///
    /// # Errors
    /// [`ResourceFault::Malformed`] for what is no pattern, and for too many.
    pub fn new(includes: Option<&[String]>, excludes: &[String]) -> Result<Self, ResourceFault> {
        Ok(Self { includes: includes.map(set).transpose()?, excludes: set(excludes)? })
    }

    /// Whether a change of this path is wanted. The root itself always is.
    pub(super) fn lets(&self, path: &Path) -> bool {
        let is_root = path.as_os_str().is_empty();
        let is_included = self.includes.as_ref().is_none_or(|includes| includes.is_match(path));
        is_root || (is_included && !self.excludes.is_match(path))
    }

    /// Whether nothing in this directory can be wanted.
    pub(super) fn prunes(&self, directory: &Path) -> bool {
        let is_root = directory.as_os_str().is_empty();
        !is_root && (self.excludes.is_match(directory) || self.excludes.is_match(directory.join("\u{1}")))
    }
}

fn set(patterns: &[String]) -> Result<GlobSet, ResourceFault> {
    if patterns.len() > MAX_PATTERNS {
        return Err(ResourceFault::Malformed(format!("more than {MAX_PATTERNS} patterns")));
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let plain = pattern.trim_start_matches("./").trim_matches('/');
        let is_anchored = plain.contains('/') || pattern.starts_with("./") || pattern.starts_with('/');
        let mut all = vec![plain.to_owned(), format!("{plain}/**")];
        if !is_anchored {
            all.extend([format!("**/{plain}"), format!("**/{plain}/**")]);
        }
        for one in all {
            let glob = GlobBuilder::new(&one).literal_separator(true).build();
            set.add(glob.map_err(|error| ResourceFault::Malformed(format!("{pattern}: {}", error.kind())))?);
        }
    }
    set.build().map_err(|error| ResourceFault::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(includes: Option<&[&str]>, excludes: &[&str]) -> Filter {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        Filter::new(includes.map(owned).as_deref(), &owned(excludes)).unwrap()
    }

    #[test]
    fn excludes_and_includes_are_globs_or_paths() {
        let out = filter(None, &["**/node_modules/**", "target", "*.tmp", "a/b", "./c/"]);
        for gone in
            ["node_modules/x", "d/node_modules/x/y", "target", "target/x", "x.tmp", "d/x.tmp", "a/b", "a/b/c", "c/d"]
        {
            assert!(!out.lets(Path::new(gone)), "{gone}");
        }
        for there in ["", "x", "a/c", "d/a/b", "targets"] {
            assert!(out.lets(Path::new(there)), "{there}");
        }
        assert!(
            out.prunes(Path::new("node_modules")) && out.prunes(Path::new("target")) && !out.prunes(Path::new("a"))
        );
        let only = filter(Some(&["*.rs", "src/**"]), &["src/gen"]);
        assert!(only.lets(Path::new("a/b.rs")) && only.lets(Path::new("src/x")) && only.lets(Path::new("")));
        assert!(!only.lets(Path::new("b.md")) && !only.lets(Path::new("src/gen/x")) && !only.prunes(Path::new("a")));
    }

    #[test]
    fn what_is_no_pattern_is_malformed() {
        assert!(Filter::new(None, &["[".to_owned()]).is_err());
        assert!(Filter::new(None, &vec!["a".to_owned(); MAX_PATTERNS + 1]).is_err());
    }
}
