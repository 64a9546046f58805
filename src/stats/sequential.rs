//! When a study may stop before all of its blocks are run.

use super::effect::Effect;
use crate::record::{CellId, Study};
use std::collections::BTreeMap;

/// Whether the declared stopping rule ends the study now; the reason if so.
pub fn should_stop(study: &Study) -> Option<String> {
    let header = &study.header;
    let rule = header.schedule.stopping?;
    let of = |id: &CellId| -> BTreeMap<u32, f64> {
        let own = study.trials.iter().filter(|trial| trial.cell == *id);
        own.filter_map(|trial| Some((trial.block, trial.throughput()?))).collect()
    };
    let baseline = of(&header.baseline);
    let others = header.cells.iter().filter(|cell| !cell.null && cell.id != header.baseline);
    let mut blocks = 0;
    for cell in others {
        let own = of(&cell.id);
        if own.is_empty() {
            continue;
        }
        let pairs: Vec<(f64, f64)> =
            baseline.iter().filter_map(|(b, a)| Some((*a, *own.get(b)?))).collect();
        let effect = Effect::of(&pairs, header.judgement.confidence)?;
        let wide = effect.interval?.log_half_width > rule.within.ln_1p();
        if wide || effect.blocks < rule.at_least as usize {
            return None;
        }
        blocks = blocks.max(effect.blocks);
    }
    let within = rule.within * 100.0;
    let most = header.schedule.blocks;
    (blocks > 0).then(|| {
        format!("after {blocks} of at most {most} blocks every interval is within {within}%")
    })
}
