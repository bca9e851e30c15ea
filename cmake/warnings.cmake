# Warnings and floating-point rules every target of ours is compiled with.
set(warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-align
  -Woverloaded-virtual -Wconversion -Wno-sign-conversion -Wdouble-promotion
  # One definition of every rounding: no fused multiply-add that the source does not ask for.
  -ffp-contract=off
  $<$<BOOL:${SPRAT_WERROR}>:-Werror>)
add_library(sprat_warnings INTERFACE)
target_compile_options(sprat_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")

# sprat_layer(NAME FILES...): one layer of the library as an object library `sprat_NAME`.
function(sprat_layer name)
  add_library(sprat_${name} OBJECT ${ARGN})
  target_include_directories(sprat_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
  target_compile_definitions(sprat_${name} PRIVATE SPRAT_BUILDING)
  target_link_libraries(sprat_${name} PRIVATE sprat_warnings PUBLIC sprat_dependencies)
  # No batch of a unity build takes files that Highway compiles once per instruction set: they include themselves.
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} once_per_target REGEX "hwy/foreach_target\\.h")
    if(once_per_target)
      set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
