//! The formats of the catalogue except HTML, one file each.

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod ktap;
pub(crate) mod netdev;
pub(crate) mod parquet;
pub(crate) mod rows;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod text;
