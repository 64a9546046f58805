//! The formats of the catalogue that are not HTML, each in a file.

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod ktap;
pub(crate) mod netdev;
pub(crate) mod parquet;
pub(crate) mod rows;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod text;
