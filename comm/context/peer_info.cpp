#include "comm/context/peer_info.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

using nlohmann::json;

Blob to_blob(const json& value) {
  const auto bytes = json::to_cbor(value);
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  return {first, first + bytes.size()};
}

json::binary_t to_binary(const Blob& blob) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(blob.data());
  return json::binary_t({first, first + blob.size()});
}

/// The fields of an object that a rank sent. Whatever is missing or of another kind throws.
class Fields {
 public:
  Fields(const Blob& blob, int rank) : rank_(rank) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(blob.data());
    constexpr bool strict = true, may_throw = false;
    value_ = json::from_cbor(first, first + blob.size(), strict, may_throw);
    expect(value_.is_object(), "all of it");
  }

  bool has(const char* key) const { return value_.contains(key); }

  template <class Number>
  Number number(const char* key, Number least = 0) const {
    return checked_number<Number>(at(key), key, least);
  }

  std::string string(const char* key) const {
    const json& value = at(key);
    expect(value.is_string(), key);
    return value.get<std::string>();
  }

  Blob binary(const char* key) const {
    const json& value = at(key);
    expect(value.is_binary(), key);
    const auto& bytes = value.get_binary();
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    return {first, first + bytes.size()};
  }

  std::vector<int> numbers(const char* key, int limit) const {
    std::vector<int> numbers;
    for (const json& one : array(key)) {
      numbers.push_back(checked_number<int>(one, key, 0));
      expect(numbers.back() < limit, key);
    }
    return numbers;
  }

  std::vector<SocketAddress> addresses(const char* key) const {
    std::vector<SocketAddress> addresses;
    for (const json& one : array(key)) {
      expect(one.is_array() && one.size() == 2 && one[0].is_string(), key);
      addresses.push_back({one[0].get<std::string>(), checked_number<int>(one[1], key, 0)});
    }
    return addresses;
  }

 private:
  void expect(bool holds, std::string_view what) const {
    if (!holds) {
      throw Error(ErrorCode::unavailable,
                  text("joining: what rank ", rank_, " says of itself is damaged: ", what), rank_);
    }
  }

  const json& at(const char* key) const {
    const auto found = value_.find(key);
    expect(found != value_.end(), key);
    return *found;
  }

  const json& array(const char* key) const {
    const json& value = at(key);
    expect(value.is_array(), key);
    return value;
  }

  // JSON's own conversion would cut a number short in silence.
  template <class Number>
  Number checked_number(const json& value, const char* key, Number least) const {
    expect(value.is_number_unsigned(), key);
    const auto number = value.get<std::uint64_t>();
    expect(number <= static_cast<std::uint64_t>(std::numeric_limits<Number>::max()) &&
               static_cast<Number>(number) >= least,
           key);
    return static_cast<Number>(number);
  }

  int rank_;
  json value_;
};

}  // namespace

Blob encode(const PeerInfo& info) {
  const MemoryMap::Offer& memory = info.memory;
  json value = {{"label", info.label},
                {"machine", info.machine},
                {"name", info.name},
                {"cores", info.cores},
                {"pid", memory.pid},
                {"fd", memory.segment.fd},
                {"inode", memory.segment.inode},
                {"bytes", memory.segment.segment_bytes},
                {"address", memory.address},
                {"nonce", memory.nonce},
                {"context", info.context}};
  if (info.survival) {
    json addresses = json::array();
    for (const SocketAddress& address : info.survival->addresses) {
      addresses.push_back({address.host, address.port});
    }
    value["doors"] = std::move(addresses);
    value["secret"] = info.survival->secret;
  }
  if (!info.trace.empty()) {
    value["trace"] = info.trace;
  }
  return to_blob(value);
}

PeerInfo decode_peer_info(const Blob& blob, int rank) {
  const Fields fields(blob, rank);
  PeerInfo info{
      .label = fields.string("label"),
      .machine = fields.string("machine"),
      .name = fields.string("name"),
      .cores = fields.numbers("cores", std::numeric_limits<int>::max()),
      .memory = {.pid = fields.number<pid_t>("pid", 1),
                 .segment = {MemoryRef::Kind::segment, fields.number<std::int32_t>("fd"),
                             fields.number<std::uint64_t>("inode"),
                             fields.number<std::uint64_t>("bytes", sizeof(ControlHeader)), 0},
                 .address = fields.number<std::uint64_t>("address"),
                 .nonce = fields.number<std::uint64_t>("nonce", 1)},
      .context = fields.number<std::uint64_t>("context"),
  };
  if (fields.has("doors")) {
    info.survival = {.addresses = fields.addresses("doors"), .secret = fields.string("secret")};
  }
  if (fields.has("trace")) {
    info.trace = fields.string("trace");
  }
  return info;
}

Blob encode(const Reach& reach) {
  return to_blob({{"label", reach.label}, {"mapped", reach.mapped}, {"readable", reach.readable}});
}

Reach decode_reach(const Blob& blob, int rank, int size) {
  const Fields fields(blob, rank);
  return {.label = fields.string("label"),
          .mapped = fields.numbers("mapped", size),
          .readable = fields.numbers("readable", size)};
}

Blob encode(const TransportAddresses& addresses) {
  return to_blob({{"local", to_binary(addresses.local)},
                  {"wire", to_binary(addresses.wire)},
                  {"kind", addresses.wire_kind}});
}

TransportAddresses decode_transport_addresses(const Blob& blob, int rank) {
  const Fields fields(blob, rank);
  return {.local = fields.binary("local"),
          .wire = fields.binary("wire"),
          .wire_kind = fields.string("kind")};
}

}  // namespace sprat::comm
