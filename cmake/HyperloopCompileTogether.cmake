# hyperloop_compile_together(TARGET): eight sources at a time, which takes a fraction of the time. Alone are only those with
# SKIP_UNITY_BUILD_INCLUSION: the ones that planted bugs replace (tests/simulation), and those about which g++ warns that a
# public class has a field from an anonymous namespace, which is right in a source and wrong in a header.
function(hyperloop_compile_together TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON)
endfunction()
