# What `cmake --install` puts where: find_package(sprat) gives sprat::sprat and sprat::sprat_static. Each component is a package
# of Debian's (package.cmake); without --component all are installed.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sprat)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sprat DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# Two exports: a program that uses the shared library needs none of the static one's dependencies.
install(TARGETS sprat EXPORT sprat_shared_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS sprat_static EXPORT sprat_static_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT development)
foreach(kind shared static)
  install(EXPORT sprat_${kind}_targets NAMESPACE sprat:: DESTINATION ${package_dir} COMPONENT development)
endforeach()

# What the static library needs beside fmt, spdlog and nlohmann_json, by pkg-config's names.
set(sprat_modules hwloc libhwy libxxhash libisal zlib libcrypto libssl libpcre2-8 liburing)
if(pmix_FOUND)
  list(APPEND sprat_modules pmix)
endif()
configure_package_config_file(cmake/spratConfig.cmake.in ${PROJECT_BINARY_DIR}/spratConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/spratConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/spratConfig.cmake ${PROJECT_BINARY_DIR}/spratConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT development)

# sprat.pc finds its prefix from where it lies, so an installed tree may be moved.
file(RELATIVE_PATH sprat_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" sprat_pc_prefix "${sprat_pc_prefix}")
list(JOIN sprat_modules " " sprat_pc_requires_private)
configure_file(cmake/sprat.pc.in ${PROJECT_BINARY_DIR}/sprat.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sprat.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# Manual pages and completions, which the command makes of its own options. Not where Sprat is part of another project.
if(PROJECT_IS_TOP_LEVEL)
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:sprat_cli>\" man --write
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT command)
endif()
