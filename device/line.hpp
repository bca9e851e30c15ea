// A queue of things that know the next one: nothing is allocated, whatever stands in it.
#pragma once

#include <utility>

namespace sprat::device {

/// First in, first out. A thing stands in one line at most of those that link it by the same
/// member. One thread.
template <class Thing, Thing* Thing::*next = &Thing::next>
class Line {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  Thing* front() const noexcept { return first_; }

  void push(Thing* thing) noexcept {
    thing->*next = nullptr;
    (first_ == nullptr ? first_ : last_->*next) = thing;
    last_ = thing;
  }

  /// Null if the line is empty.
  Thing* pop() noexcept {
    Thing* const thing = first_;
    if (thing != nullptr) {
      first_ = thing->*next;
    }
    return thing;
  }

  /// All of `other`, in its order, behind what is here.
  void append(Line other) noexcept {
    while (Thing* const thing = other.pop()) {
      push(thing);
    }
  }
  Line take() noexcept { return std::exchange(*this, Line()); }

 private:
  Thing* first_ = nullptr;
  Thing* last_ = nullptr;
};

}  // namespace sprat::device
