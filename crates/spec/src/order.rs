//! The order of trials: blocks, each a random permutation of all cells.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Returns one entry per trial: (block, index of the cell). The same seed gives the same order.
pub fn order(cells: usize, blocks: u32, seed: u64) -> Vec<(u32, usize)> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut order = Vec::with_capacity(cells * blocks as usize);
    for block in 0..blocks {
        let mut pass: Vec<usize> = (0..cells).collect();
        pass.shuffle(&mut random);
        order.extend(pass.into_iter().map(|cell| (block, cell)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_every_cell_once() {
        let order = order(7, 5, 42);
        assert_eq!(order.len(), 35);
        for block in 0..5 {
            let mut cells: Vec<usize> =
                order.iter().filter(|(b, _)| *b == block).map(|(_, c)| *c).collect();
            cells.sort_unstable();
            assert_eq!(cells, (0..7).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(order(6, 3, 1), order(6, 3, 1));
        assert_ne!(order(6, 3, 1), order(6, 3, 2));
    }
}
