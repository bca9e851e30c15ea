// What is visible outside the shared library.
#pragma once

#define SPRAT_API __attribute__((visibility("default")))
