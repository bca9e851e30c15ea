// Arrow reads batches of rows; of each row the values are written one after another. Nothing of
// Arrow is linked into the library: programs that load another Arrow, as pyarrow's, would meet two.
#include "cli/io/convert/parquet.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "comm/base/check.hpp"

namespace sprat::cli {
namespace {

using CellJson = nlohmann::ordered_json;

/// Images and the like are large: so many rows are in memory at once.
constexpr std::int64_t rows_at_once = 256;

/// The name that MDS and numpy have for a type of numbers; empty if it is none.
std::string_view number_name(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:  // MDS has none of one bit
    case arrow::Type::UINT8:
      return "uint8";
    case arrow::Type::INT8:
      return "int8";
    case arrow::Type::INT16:
      return "int16";
    case arrow::Type::UINT16:
      return "uint16";
    case arrow::Type::INT32:
      return "int32";
    case arrow::Type::UINT32:
      return "uint32";
    case arrow::Type::INT64:
      return "int64";
    case arrow::Type::UINT64:
      return "uint64";
    case arrow::Type::HALF_FLOAT:
      return "float16";
    case arrow::Type::FLOAT:
      return "float32";
    case arrow::Type::DOUBLE:
      return "float64";
    default:
      return {};
  }
}

std::uint32_t number_bytes(const arrow::DataType& type) {
  return type.id() == arrow::Type::BOOL ? 1 : static_cast<std::uint32_t>(type.byte_width());
}

bool is_text(const arrow::DataType& type) {
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
}
bool is_bytes(const arrow::DataType& type) {
  return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY ||
         type.id() == arrow::Type::FIXED_SIZE_BINARY;
}
bool is_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
         type.id() == arrow::Type::FIXED_SIZE_LIST;
}

/// Whether JSON can say it.
bool is_json(const arrow::DataType& type) {
  // A map's keys may be anything, those of JSON are texts.
  if (type.id() == arrow::Type::MAP) {
    return false;
  }
  if (is_list(type) || type.id() == arrow::Type::STRUCT) {
    return std::ranges::all_of(type.fields(),
                               [](const auto& field) { return is_json(*field->type()); });
  }
  // A float16 would need a parser of its own, and is no text's.
  return is_text(type) || (!number_name(type).empty() && type.id() != arrow::Type::HALF_FLOAT);
}

/// As JSON wants names: what it would replace is what it would leave out, nothing.
bool is_utf8(const std::string& name) {
  const CellJson json(name);
  return json.dump(-1, ' ', false, CellJson::error_handler_t::replace) ==
         json.dump(-1, ' ', false, CellJson::error_handler_t::ignore);
}

/// A column of MDS, and where its values are: fields of structs within structs.
struct CellColumn {
  MdsColumn column;
  std::vector<int> path;
};

std::optional<MdsColumn> column_of(const std::string& name, const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY) {
    return column_of(name, *static_cast<const arrow::DictionaryType&>(type).value_type());
  }
  if (const std::string_view number = number_name(type); !number.empty()) {
    return MdsColumn{name, std::string(number), number_bytes(type)};
  }
  if (is_text(type) || is_bytes(type)) {
    return MdsColumn{name, is_text(type) ? "str" : "bytes", 0};
  }
  if (is_list(type)) {
    const std::string_view number = number_name(*type.field(0)->type());
    if (!number.empty()) {
      return MdsColumn{name, "ndarray:" + std::string(number), 0};
    }
  }
  return is_json(type) ? std::optional(MdsColumn{name, "json", 0}) : std::nullopt;
}

CellJson json_of(const arrow::Array& array, std::int64_t row);

template <class List>
CellJson json_of_list(const arrow::Array& array, std::int64_t row) {
  const std::shared_ptr<arrow::Array> values = static_cast<const List&>(array).value_slice(row);
  CellJson list = CellJson::array();
  for (std::int64_t i = 0; i < values->length(); ++i) {
    list.push_back(json_of(*values, i));
  }
  return list;
}

template <class Type>
CellJson json_of_number(const arrow::Array& array, std::int64_t row) {
  return static_cast<const arrow::NumericArray<Type>&>(array).Value(row);
}

/// Of a type that is_json() knows.
CellJson json_of(const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) {
    return nullptr;
  }
  // Lists within structs within lists: each level asks for itself.
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return static_cast<const arrow::BooleanArray&>(array).Value(row);
    case arrow::Type::UINT8:
      return json_of_number<arrow::UInt8Type>(array, row);
    case arrow::Type::INT8:
      return json_of_number<arrow::Int8Type>(array, row);
    case arrow::Type::UINT16:
      return json_of_number<arrow::UInt16Type>(array, row);
    case arrow::Type::INT16:
      return json_of_number<arrow::Int16Type>(array, row);
    case arrow::Type::UINT32:
      return json_of_number<arrow::UInt32Type>(array, row);
    case arrow::Type::INT32:
      return json_of_number<arrow::Int32Type>(array, row);
    case arrow::Type::UINT64:
      return json_of_number<arrow::UInt64Type>(array, row);
    case arrow::Type::INT64:
      return json_of_number<arrow::Int64Type>(array, row);
    case arrow::Type::FLOAT:
      return json_of_number<arrow::FloatType>(array, row);
    case arrow::Type::DOUBLE:
      return json_of_number<arrow::DoubleType>(array, row);
    case arrow::Type::STRING:
      return std::string(static_cast<const arrow::StringArray&>(array).GetView(row));
    case arrow::Type::LARGE_STRING:
      return std::string(static_cast<const arrow::LargeStringArray&>(array).GetView(row));
    case arrow::Type::LIST:
      return json_of_list<arrow::ListArray>(array, row);
    case arrow::Type::LARGE_LIST:
      return json_of_list<arrow::LargeListArray>(array, row);
    case arrow::Type::FIXED_SIZE_LIST:
      return json_of_list<arrow::FixedSizeListArray>(array, row);
    default:
      break;
  }
  CellJson object = CellJson::object();
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  for (int i = 0; i < fields.num_fields(); ++i) {
    object[fields.type()->field(i)->name()] = json_of(*fields.field(i), row);
  }
  return object;
}

void append_numbers(const arrow::Array& array, std::int64_t begin, std::int64_t count,
                    std::string& to) {
  // Bits of Arrow's are packed; all other numbers lie as MDS has them.
  if (array.type_id() == arrow::Type::BOOL) {
    for (std::int64_t i = begin; i < begin + count; ++i) {
      to.push_back(static_cast<const arrow::BooleanArray&>(array).Value(i) ? 1 : 0);
    }
    return;
  }
  const std::int64_t each = number_bytes(*array.type());
  const auto& numbers = static_cast<const arrow::PrimitiveArray&>(array);
  const std::uint8_t* const first = numbers.values()->data() + (numbers.offset() + begin) * each;
  to.append(reinterpret_cast<const char*>(first), static_cast<std::size_t>(count * each));
}

/// One dimension with an extent of 32 bits, and the numbers; false if one of them is null.
bool append_array(const arrow::Array& numbers, std::string& to) {
  if (numbers.null_count() > 0 || numbers.length() > UINT32_MAX) {
    return false;
  }
  to.push_back(1 << 2 | 2);
  const auto extent = static_cast<std::uint32_t>(numbers.length());
  to.append(reinterpret_cast<const char*>(&extent), sizeof extent);
  if (extent > 0) {
    append_numbers(numbers, 0, numbers.length(), to);
  }
  return true;
}

std::shared_ptr<arrow::Array> list_at(const arrow::Array& array, std::int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return static_cast<const arrow::ListArray&>(array).value_slice(row);
    case arrow::Type::LARGE_LIST:
      return static_cast<const arrow::LargeListArray&>(array).value_slice(row);
    default:
      return static_cast<const arrow::FixedSizeListArray&>(array).value_slice(row);
  }
}

std::string_view bytes_at(const arrow::Array& array, std::int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(row);
    case arrow::Type::FIXED_SIZE_BINARY:
      return static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(row);
    default:
      return static_cast<const arrow::BinaryArray&>(array).GetView(row);
  }
}

/// Of a cell that is null: zero, an empty text, an array of no number.
std::string filled(const MdsColumn& column) {
  return column.encoding.starts_with("ndarray") ? std::string{1 << 2 | 0, 0}
                                                : std::string(column.bytes, '\0');
}

/// The bytes that MDS has for a cell; nullopt for a null.
std::optional<std::string> cell_of(const MdsColumn& column, const arrow::Array& array,
                                   std::int64_t row) {
  if (array.type_id() == arrow::Type::DICTIONARY && !array.IsNull(row)) {
    const auto& words = static_cast<const arrow::DictionaryArray&>(array);
    return cell_of(column, *words.dictionary(), words.GetValueIndex(row));
  }
  if (column.encoding == "json") {
    // Texts that are no UTF-8 have no form in JSON.
    return json_of(array, row).dump(-1, ' ', false, CellJson::error_handler_t::replace);
  }
  if (array.IsNull(row)) {
    return std::nullopt;
  }
  std::string cell;
  if (column.bytes > 0) {
    append_numbers(array, row, 1, cell);
  } else if (is_list(*array.type())) {
    return append_array(*list_at(array, row), cell) ? std::optional(cell) : std::nullopt;
  } else {
    cell = bytes_at(array, row);
  }
  return cell;
}

template <class Value>
Value value_of(const std::string& file, arrow::Result<Value> result) {
  need(result.ok(), "cannot read ", file, ": ", result.status().ToString());
  return std::move(result).ValueUnsafe();
}

/// One file, row by row.
class ParquetRows {
 public:
  ParquetRows(const std::string& file, const std::vector<std::string>& wanted) : file_(file) {
    std::error_code none;
    // Arrow would wait for somebody who writes into a pipe.
    need(!std::filesystem::exists(file, none) || std::filesystem::is_regular_file(file, none),
         "cannot read ", file, ": it is a folder, a pipe or a device, no file");
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();  // a row group need not fit into memory
    parquet::arrow::FileReaderBuilder builder;
    const auto source = value_of(file, arrow::io::ReadableFile::Open(file));
    const arrow::Status opened = builder.Open(source, properties);
    need(opened.ok(), "cannot read ", file, ": ", opened.ToString());
    parquet::ArrowReaderProperties reading;
    reading.set_batch_size(rows_at_once);
    reading.set_pre_buffer(false);  // which would read whole row groups ahead
    reader_ = value_of(file, builder.properties(reading)->Build());
    std::vector<int> groups(static_cast<std::size_t>(reader_->num_row_groups()));
    std::iota(groups.begin(), groups.end(), 0);
    batches_ = value_of(file, reader_->GetRecordBatchReader(groups, leaves_of(wanted)));
    for (int i = 0; i < batches_->schema()->num_fields(); ++i) {
      const arrow::Field& field = *batches_->schema()->field(i);
      find_columns(field.name(), *field.type(), {i});
    }
    // As MosaicML's writer has them.
    std::ranges::sort(columns_, {}, [](const CellColumn& one) { return one.column.name; });
    const auto twice = std::ranges::adjacent_find(
        columns_, {}, [](const CellColumn& one) { return one.column.name; });
    need(twice == columns_.end(), file_, " has two columns ",
         twice == columns_.end() ? "" : twice->column.name,
         ", and readers of MDS would see one: name the columns that are wanted (--columns)");
  }

  std::vector<MdsColumn> columns() const {
    std::vector<MdsColumn> columns;
    for (const CellColumn& one : columns_) {
      columns.push_back(one.column);
    }
    return columns;
  }

  void write_to(MdsWriter& writer, bool fill_nulls) {
    std::vector<std::string> values(columns_.size());
    std::uint64_t rows = 0;
    // Arrow decodes columns, and MDS has rows: a batch is turned by going through it row by row.
    while (const auto batch = value_of(file_, batches_->Next())) {
      std::vector<std::shared_ptr<arrow::Array>> arrays;
      for (const CellColumn& one : columns_) {
        arrays.push_back(array_of(*batch, one.path));
      }
      for (std::int64_t row = 0; row < batch->num_rows(); ++row, ++rows) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          std::optional<std::string> cell = cell_of(columns_[i].column, *arrays[i], row);
          need(cell || fill_nulls, file_, ": row ", rows, " has a null in the column ",
               columns_[i].column.name, ", and MDS has none: --fill-nulls takes zeros and empty ",
               "texts for them, --columns leaves columns out");
          values[i] = cell ? std::move(*cell) : filled(columns_[i].column);
        }
        writer.add(values);
      }
    }
  }

 private:
  /// Structs become a column for each of their fields: "image.bytes", "image.path".
  void find_columns(const std::string& name, const arrow::DataType& type,
                    const std::vector<int>& path) {
    if (type.id() == arrow::Type::STRUCT) {
      for (int i = 0; i < type.num_fields(); ++i) {
        std::vector<int> deeper = path;
        deeper.push_back(i);
        find_columns(name + "." + type.field(i)->name(), *type.field(i)->type(), deeper);
      }
      return;
    }
    need(is_utf8(name), file_, ": the name of column ", path.front(),
         " is no UTF-8, which MDS writes names in: name the columns that are wanted (--columns)");
    const std::optional<MdsColumn> column = column_of(name, type);
    need(column.has_value(), file_, ": the column ", name, " is of type ", type.ToString(),
         ", for which MDS has no encoding: name the columns that are wanted (--columns)");
    columns_.push_back({.column = *column, .path = path});
  }

  /// Columns of Parquet are the leaves of those that people name.
  std::vector<int> leaves_of(const std::vector<std::string>& wanted) const {
    const auto& schema = *reader_->parquet_reader()->metadata()->schema();
    std::vector<int> leaves;
    std::set<std::string> names;
    for (int i = 0; i < schema.num_columns(); ++i) {
      const std::string root = schema.Column(i)->path()->ToDotVector().front();
      names.insert(root);
      if (wanted.empty() || std::ranges::find(wanted, root) != wanted.end()) {
        leaves.push_back(i);
      }
    }
    for (const std::string& name : wanted) {
      std::string known;
      for (const std::string& one : names) {
        known += text(known.empty() ? "" : ", ", one);
      }
      need(names.contains(name), file_, " has no column ", name, "; it has ", known);
    }
    return leaves;
  }

  std::shared_ptr<arrow::Array> array_of(const arrow::RecordBatch& batch,
                                         const std::vector<int>& path) const {
    std::shared_ptr<arrow::Array> array = batch.column(path.front());
    for (std::size_t depth = 1; depth < path.size(); ++depth) {
      // Flattened: a field of a struct that is null is null.
      array = value_of(file_, static_cast<const arrow::StructArray&>(*array).GetFlattenedField(
                                  path[depth], arrow::default_memory_pool()));
    }
    return array;
  }

  const std::string& file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::vector<CellColumn> columns_;
};

std::string columns_text(const std::vector<MdsColumn>& columns) {
  std::string words;
  for (const MdsColumn& column : columns) {
    words += text(words.empty() ? "" : ", ", column.name, " ", column.encoding);
  }
  return words;
}

}  // namespace

std::string parquet_reader() { return "Apache Arrow " + arrow::GetBuildInfo().version_string; }

MdsWritten convert_parquet(const ParquetRequest& request) {
  require(!request.files.empty(), "there is no Parquet file to convert");
  std::optional<MdsWriter> writer;
  std::vector<MdsColumn> columns;
  // Columns are known with the first file, and only then is there a folder.
  for (const std::string& file : request.files) {
    ParquetRows rows(file, request.columns);
    if (!writer) {
      columns = rows.columns();
      writer.emplace(request.folder, columns, request.shard_bytes);
    }
    need(rows.columns() == columns, file, " has the columns ", columns_text(rows.columns()),
         ", and ", request.files.front(), " has ", columns_text(columns),
         ": convert them into folders of their own, or name columns that both have (--columns)");
    rows.write_to(*writer, request.fill_nulls);
  }
  return writer->finish();
}

}  // namespace sprat::cli
