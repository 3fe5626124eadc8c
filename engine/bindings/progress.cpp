// SPDX-License-Identifier: MIT

#include "progress.hpp"

namespace nb = nanobind;

namespace tt::bindings {

std::function<bool(double)> progress_function(const nb::object& callback, bool& failed) {
  return [&callback, &failed](double fraction) {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      failed = true;
      return false;
    }
    if (callback.is_none()) return true;
    try {
      return nb::cast<bool>(callback(fraction));
    } catch (nb::python_error& error) {
      error.restore();
      failed = true;
      return false;
    }
  };
}

void raise_stopped(bool failed) {
  if (!failed) PyErr_SetString(PyExc_KeyboardInterrupt, "stopped by the progress callback");
  throw nb::python_error();
}

}  // namespace tt::bindings
