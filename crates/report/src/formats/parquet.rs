//! `parquet` and `summary-parquet`: the two tables in columns, for pandas, DuckDB, Polars and
//! Spark. Dictionary-encoded but not compressed: names are so repetitive that a codec would save
//! little and would add a dependency.

use super::rows::rows;
use super::summary::cells;
use super::table::{Kind, Record, Value};
use crate::report::Report;
use ::parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{Type, TypePtr};
use std::io;
use std::sync::Arc;

/// Rows per group, so that memory stays bounded.
const GROUP: usize = 65_536;

/// The long table.
pub(crate) static FORMAT: Report = Report {
    name: "parquet",
    summary: "the csv table in columnar form, for pandas, DuckDB and the like",
    extension: "parquet",
    binary: true,
    short_names: false,
    // The format's writer must be sendable between threads, which `out` cannot guarantee; a table
    // of this kind fits into memory.
    render: |subject, _, out| {
        let study = subject.study;
        let rows = study.trials.iter().flat_map(|trial| rows(study, trial));
        out.write_all(&encode("trials", rows).map_err(io::Error::other)?)
    },
};

/// The short one.
pub(crate) static SUMMARY: Report = Report {
    name: "summary-parquet",
    summary: "the summary-csv table in columnar form",
    extension: "parquet",
    binary: true,
    short_names: false,
    render: |subject, _, out| {
        out.write_all(&encode("cells", cells(subject)).map_err(io::Error::other)?)
    },
};

fn encode<R: Record>(
    name: &str,
    mut rows: impl Iterator<Item = R>,
) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_created_by(concat!("bytepath ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let schema = schema::<R>(name)?;
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    // Some readers require at least one group, even without rows.
    loop {
        let group: Vec<R> = rows.by_ref().take(GROUP).collect();
        write_group(&mut file, &group)?;
        if group.len() < GROUP {
            return file.into_inner();
        }
    }
}

fn schema<R: Record>(name: &str) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for (name, kind) in R::columns() {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Whole => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Flag => (Physical::BOOLEAN, None),
            Kind::Moment => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        };
        let field = Type::primitive_type_builder(&name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder(name).with_fields(fields).build()?))
}

fn write_group<R: Record>(
    file: &mut SerializedFileWriter<Vec<u8>>,
    rows: &[R],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for (column, (_, kind)) in R::columns().into_iter().enumerate() {
        let values = rows.iter().map(|row| row.value(column));
        match kind {
            Kind::Text => write_column::<ByteArrayType>(&mut group, values, |v| match v {
                Value::Text(text) => Some(ByteArray::from(text.as_ref())),
                _ => None,
            }),
            Kind::Whole | Kind::Moment => {
                write_column::<Int64Type>(&mut group, values, |v| match v {
                    Value::Whole(number) | Value::Moment(number) => Some(number),
                    _ => None,
                })
            }
            Kind::Number => write_column::<DoubleType>(&mut group, values, |v| match v {
                Value::Number(number) => Some(number),
                _ => None,
            }),
            Kind::Flag => write_column::<BoolType>(&mut group, values, |v| match v {
                Value::Flag(flag) => Some(flag),
                _ => None,
            }),
        }?;
    }
    group.close()?;
    Ok(())
}

fn write_column<'a, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: impl Iterator<Item = Value<'a>>,
    take: impl Fn(Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    // An absent value has definition level 0 and no entry among the values.
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for value in rows.map(take) {
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let missing = || ParquetError::General("more columns than the schema has".into());
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    writer.close()
}
