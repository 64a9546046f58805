//! Names of cells, whole and as reports shorten them: levels that all cells share are listed once,
//! at the head, and left out of every name.

use super::{Cell, StudyHeader, joined};

/// Returns the levels that all of these names have after the path.
pub fn shared_levels<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let [first, others @ ..] = names else { return Vec::new() };
    let everywhere = |word: &&str| others.iter().all(|name| levels(name).any(|w| w == *word));
    levels(first).filter(everywhere).collect()
}

/// Removes these levels from a name.
pub fn without_levels(name: &str, left_out: &[&str]) -> String {
    let path = name.split(' ').take(1);
    joined(path.chain(levels(name).filter(|word| !left_out.contains(word))), " ")
}

fn levels(name: &str) -> impl Iterator<Item = &str> {
    name.split(' ').skip(1)
}

impl StudyHeader {
    /// Finds the cell of this name, whole or shortened.
    pub fn cell_named(&self, name: &str) -> Option<&Cell> {
        let names: Vec<&str> = self.cells.iter().map(|cell| cell.id.0.as_str()).collect();
        let shared = shared_levels(&names);
        let is_named =
            |cell: &&Cell| cell.id.0 == name || without_levels(&cell.id.0, &shared) == name;
        self.cells.iter().find(is_named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_all_names_share_are_left_out() {
        let names = [
            "socket rr:depth=8 cores=together mtu=4148",
            "zcrx:area=64M rr:depth=8 cores=apart mtu=4148",
            "socket rr:depth=8 cores=together mtu=4148 (again)",
        ];
        let levels = shared_levels(&names);
        assert_eq!(levels, ["rr:depth=8", "mtu=4148"]);
        assert_eq!(
            names.map(|name| without_levels(name, &levels)),
            ["socket cores=together", "zcrx:area=64M cores=apart", "socket cores=together (again)"]
        );
        assert!(shared_levels(&["socket flows=2", "splice flows=4"]).is_empty());
        assert!(shared_levels(&["socket", "socket (again)"]).is_empty());
        assert!(shared_levels(&[]).is_empty());
    }
}
