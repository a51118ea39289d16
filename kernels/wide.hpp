// Loops compiled twice, for the baseline and for AVX2; has_avx2() chooses at run time. Elementwise IEEE
// arithmetic without contraction gives the same bits either way, so the choice never changes a result.
#pragma once

namespace muster::kernels {

#if defined(__x86_64__) && defined(__GNUC__)
namespace detail {

// flatten: all that f calls is inlined here, and so compiled for AVX2 too.
template<class F>
[[gnu::target("avx2"), gnu::flatten]] void call_avx2(F& f) {
  f();
}

inline bool has_avx2() {
  static const bool answer = __builtin_cpu_supports("avx2") != 0;
  return answer;
}

}  // namespace detail
#endif

// Calls f(). The call costs a test, so f() should process a whole run of elements, not one.
template<class F>
void wide(F&& f) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (detail::has_avx2()) {
    detail::call_avx2(f);
    return;
  }
#endif
  f();
}

}  // namespace muster::kernels
