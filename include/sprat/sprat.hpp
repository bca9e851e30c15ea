// All of Sprat's C++ API.
#pragma once

#include "sprat/buffer.hpp"
#include "sprat/checkpoint.hpp"
#include "sprat/communicator.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"
#include "sprat/fsdp.hpp"
#include "sprat/fusion.hpp"
#include "sprat/io.hpp"
#include "sprat/layers.hpp"
#include "sprat/layout.hpp"
#include "sprat/mesh.hpp"
#include "sprat/mp.hpp"
#include "sprat/parameters.hpp"
#include "sprat/reduction.hpp"
#include "sprat/smp.hpp"
#include "sprat/store.hpp"
