//! The offload features that a link switches for itself (ethtool(8), -k).

/// Segmentation of TCP in all its kinds; newer kernels know more of them.
pub fn is_tso(feature: &str) -> bool {
    feature.starts_with("tx-tcp") && feature.ends_with("-segmentation")
}
