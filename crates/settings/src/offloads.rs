//! The offload features that a link switches for itself (ethtool(8), -k).

use bytepath_record::{GRO, HW_GRO};

/// Whether a link switches this feature.
pub fn is_set_by_link(feature: &str) -> bool {
    feature == GRO || feature == HW_GRO || is_tso(feature)
}

/// Segmentation of TCP in all its kinds; newer kernels know more of them.
pub fn is_tso(feature: &str) -> bool {
    feature.starts_with("tx-tcp") && feature.ends_with("-segmentation")
}
