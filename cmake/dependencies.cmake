# The libraries Sprat stands on. All come as packages; none is vendored or fetched.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(libfabric REQUIRED libfabric)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(libcrypto REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(libssl REQUIRED IMPORTED_TARGET libssl>=3.0)
pkg_check_modules(libpcre2-8 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
# Only their headers: gemm loads OpenBLAS at run time, to choose the kernel, and comm libfabric when a
# job has more than one host.
pkg_check_modules(openblas REQUIRED openblas)
# PMIx only carries the launcher's greeting; without it torchrun, files and addresses still work.
pkg_check_modules(pmix IMPORTED_TARGET pmix)

add_library(sprat_dependencies INTERFACE)
target_link_libraries(sprat_dependencies INTERFACE
  Threads::Threads fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json Boost::headers
  PkgConfig::hwloc PkgConfig::hwy PkgConfig::xxhash PkgConfig::isal PkgConfig::zlib PkgConfig::libcrypto PkgConfig::libssl PkgConfig::libpcre2-8
  PkgConfig::liburing ${CMAKE_DL_LIBS})
target_include_directories(sprat_dependencies SYSTEM INTERFACE ${openblas_INCLUDE_DIRS} ${libfabric_INCLUDE_DIRS})
if(pmix_FOUND)
  target_link_libraries(sprat_dependencies INTERFACE PkgConfig::pmix)
  target_compile_definitions(sprat_dependencies INTERFACE SPRAT_PMIX=1)
endif()
