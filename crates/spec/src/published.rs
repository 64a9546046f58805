//! Published works that ship with bytepath, as data: the targets of `published:NAME`.

use super::options::find;
use bytepath_record::{Fault, Published};

/// The prefix of a work's name where a study is expected.
pub const PUBLISHED: &str = "published:";

/// Every work by name, with its shipped file.
const WORKS: [(&str, &str); 4] = [
    ("battle", include_str!("../published/battle.toml")),
    ("mtcp-dsa", include_str!("../published/mtcp-dsa.toml")),
    ("affinity-2002", include_str!("../published/affinity-2002.toml")),
    ("tap", include_str!("../published/tap.toml")),
];

/// Returns the names of all works.
pub fn published_names() -> Vec<&'static str> {
    WORKS.iter().map(|(name, _)| *name).collect()
}

/// Returns the work with this name.
pub fn find_published(name: &str) -> Result<Published, Fault> {
    let (_, text) = find("published work", name, &WORKS, |(known, _)| known)?;
    toml::from_str(text).map_err(|e| Fault::failed(format!("{name}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn every_file_of_the_folder_is_a_work_that_can_be_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/published");
        let files = fs::read_dir(folder).unwrap().map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".toml").expect("TOML").to_owned()
        });
        let names: BTreeSet<String> = published_names().into_iter().map(str::to_owned).collect();
        assert_eq!(files.collect::<BTreeSet<_>>(), names);
        for name in names {
            let work = find_published(&name).unwrap();
            assert!(work.link.starts_with("https://"), "{name}: {}", work.link);
            assert!(!work.figures.is_empty(), "{name}");
        }
        let fault = find_published("batle").unwrap_err();
        assert!(fault.to_string().contains("battle"), "{fault}");
    }
}
