//! `parquet`: the long table in columns, for pandas, DuckDB, Polars and Spark.
//! Dictionary-encoded and not compressed: names repeat so much that a codec
//! would save little and cost a dependency.

use super::rows::{COLUMNS, Column, Kind, Row, Value, rows};
use crate::report::Report;
use ::parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{Type, TypePtr};
use bytepath_record::Study;
use std::io;
use std::sync::Arc;

/// Rows are written in groups of about this many, so that memory stays bounded.
const GROUP: usize = 65_536;

/// See the module's text.
pub(crate) static FORMAT: Report = Report {
    name: "parquet",
    summary: "the csv table in columnar form, for pandas, DuckDB and the like",
    extension: "parquet",
    binary: true,
    short_names: false,
    // The format's writer has to be sent between threads, which `out` cannot promise; a table of
    // this kind fits into memory.
    render: |subject, _, out| out.write_all(&encode(subject.study).map_err(io::Error::other)?),
};

fn encode(study: &Study) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_created_by(concat!("bytepath ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema()?, Arc::new(properties))?;
    let mut group: Vec<Row> = Vec::new();
    for trial in &study.trials {
        group.extend(rows(study, trial));
        if group.len() >= GROUP {
            write_group(&mut file, &group)?;
            group.clear();
        }
    }
    // Some readers want at least one group, even one without a row.
    write_group(&mut file, &group)?;
    file.into_inner()
}

fn schema() -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for column in COLUMNS {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Whole => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Flag => (Physical::BOOLEAN, None),
            Kind::Moment => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("trials").with_fields(fields).build()?))
}

fn write_group(file: &mut SerializedFileWriter<Vec<u8>>, rows: &[Row]) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for column in COLUMNS {
        match column.kind {
            Kind::Text => write_column::<ByteArrayType>(&mut group, column, rows, |v| match v {
                Value::Text(text) => Some(ByteArray::from(text.as_ref())),
                _ => None,
            }),
            Kind::Whole | Kind::Moment => {
                write_column::<Int64Type>(&mut group, column, rows, |v| match v {
                    Value::Whole(number) => Some(number),
                    _ => None,
                })
            }
            Kind::Number => write_column::<DoubleType>(&mut group, column, rows, |v| match v {
                Value::Number(number) => Some(number),
                _ => None,
            }),
            Kind::Flag => write_column::<BoolType>(&mut group, column, rows, |v| match v {
                Value::Flag(flag) => Some(flag),
                _ => None,
            }),
        }?;
    }
    group.close()?;
    Ok(())
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &Column,
    rows: &[Row],
    take: impl Fn(Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    // An absent value has definition level 0 and no entry among the values.
    let mut values = Vec::with_capacity(rows.len());
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let value = take((column.of)(row));
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let missing = || ParquetError::General(format!("no column for {}", column.name));
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    writer.close()
}
