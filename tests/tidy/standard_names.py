"""Which header of the C++ library declares a name of namespace std, for the names that our headers use."""

import re

HEADERS = {
    "algorithm": "sort stable_sort min max minmax find find_if find_if_not any_of all_of none_of clamp copy "
                 "copy_n fill fill_n lower_bound upper_bound equal_range transform count count_if for_each "
                 "nth_element reverse rotate unique remove_if max_element min_element binary_search "
                 "partition shuffle equal includes set_difference set_intersection set_union is_sorted "
                 "adjacent_find mismatch search",
    "array": "array to_array",
    "atomic": "atomic atomic_ref atomic_flag atomic_thread_fence atomic_signal_fence memory_order "
              "memory_order_relaxed memory_order_acquire memory_order_release memory_order_acq_rel "
              "memory_order_seq_cst",
    "bit": "bit_cast bit_ceil bit_floor bit_width popcount countr_zero countl_zero has_single_bit endian",
    "bitset": "bitset",
    "charconv": "to_chars from_chars",
    "chrono": "chrono",
    "cmath": "sqrt isnan isinf isfinite pow exp log lround ldexp ceil floor",
    "compare": "partial_ordering strong_ordering weak_ordering",
    "concepts": "same_as invocable integral floating_point convertible_to derived_from",
    "condition_variable": "condition_variable condition_variable_any",
    "cstddef": "byte ptrdiff_t max_align_t",
    "cstdint": "uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t uintptr_t intptr_t",
    "cstdio": "fprintf printf FILE fopen fclose fflush fputs",
    "cstdlib": "getenv abort exit atoi strtoull strtol aligned_alloc free",
    "cstring": "memcpy memset memcmp memmove memchr strlen strerror strcmp",
    "deque": "deque",
    "exception": "exception exception_ptr terminate",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "function less greater hash reference_wrapper ref cref invoke",
    "future": "future promise async",
    "initializer_list": "initializer_list",
    "istream": "istream",
    "iterator": "back_inserter advance distance next prev make_move_iterator",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared allocator construct_at destroy_at",
    "mutex": "mutex recursive_mutex lock_guard unique_lock scoped_lock once_flag call_once",
    "new": "bad_alloc nothrow launder",
    "numeric": "iota accumulate gcd lcm partial_sum inner_product reduce exclusive_scan",
    "optional": "optional nullopt nullopt_t make_optional",
    "ostream": "ostream",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 uniform_int_distribution uniform_real_distribution",
    "ranges": "ranges views",
    "regex": "regex",
    "set": "set multiset",
    "shared_mutex": "shared_mutex shared_lock",
    "source_location": "source_location",
    "span": "span as_bytes as_writable_bytes dynamic_extent",
    "sstream": "ostringstream istringstream stringstream",
    "stdexcept": "runtime_error logic_error length_error invalid_argument out_of_range",
    "stop_token": "stop_token stop_source",
    "string": "string to_string stoi stol stoul stoull getline",
    "string_view": "string_view",
    "system_error": "error_code system_error error_condition errc",
    "thread": "thread jthread this_thread",
    "tuple": "tuple tie make_tuple apply tuple_size_v",
    "type_traits": "is_same_v is_trivially_copyable_v is_trivially_destructible_v is_standard_layout_v "
                   "enable_if_t decay_t remove_cvref_t conditional_t type_identity underlying_type_t "
                   "is_integral_v is_signed_v make_unsigned_t make_signed_t invoke_result_t is_invocable_v "
                   "is_base_of_v is_enum_v",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "move pair swap exchange forward make_pair index_sequence make_index_sequence "
               "integer_sequence declval in_place as_const",
    "variant": "variant visit monostate get_if holds_alternative",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in HEADERS.items() for name in names.split()}

# A header that says that it brings another's names.
BRINGS = {"ostream": {"sstream", "fstream", "iostream"}, "istream": {"sstream", "fstream", "iostream"},
          "stop_token": {"thread", "condition_variable"}, "string": {"sstream"}}


def missing(source):
    """Yields (line, name, header) of the first use of each header's names that the file does not include."""
    included = {name for _, quote, name in source.includes() if quote == "<"}
    for number, line in enumerate(source.code.split("\n"), 1):
        for name in re.findall(r"\bstd::(\w+)", line):
            header = HEADER_OF.get(name)
            if header and header not in included and not BRINGS.get(header, set()) & included:
                included.add(header)
                yield number, name, header
