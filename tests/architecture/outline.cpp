// Reads a file character by character with a stack of open braces.
//
// What a brace opens is told by the statement before it; clang-format writes a space before the
// brace of a body and none before the brace of an initializer.
#include "tests/architecture/outline.hpp"

#include <algorithm>
#include <regex>

namespace sprat::architecture {
namespace {

/// The file as one text of the same length line by line, with comments, literals and directives
/// blanked out.
std::string code_of(const SourceFile& file) {
  std::string text;
  bool directive = false;
  for (const std::string& line : file.lines) {
    directive = directive || line.starts_with("#");
    text += directive ? "" : line;
    directive = directive && line.ends_with("\\");
    text += '\n';
  }
  static const std::regex others(R"(//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')");
  std::string code;
  auto at = text.cbegin();
  for (std::sregex_iterator match(text.begin(), text.end(), others), end; match != end; ++match) {
    code.append(at, (*match)[0].first);
    at = (*match)[0].second;
  }
  code.append(at, text.cend());
  return code;
}

/// Without what stands between < and >, which may hold parentheses and commas.
std::string without_templates(std::string text) {
  static const std::regex innermost(R"(<[^<>;{}]*>)");
  for (std::string before; before != text;) {
    before = text;
    text = std::regex_replace(text, innermost, "");
  }
  return text;
}

class Reader {
 public:
  explicit Reader(const SourceFile& file) : code_(code_of(file)) {}

  Outline read() {
    for (const char c : code_) {
      line_ += c == '\n' ? 1 : 0;
      take(c);
    }
    return std::move(outline_);
  }

 private:
  enum class Kind { space, type, enumeration, function, other };
  struct Open {
    Kind kind = Kind::other;
    std::size_t index = 0;  ///< In the outline, of a type or a function.
    std::string statement;  ///< Before an `other` brace: it goes on behind it.
    std::size_t line = 0;
  };

  Kind around() const { return open_.empty() ? Kind::space : open_.back().kind; }
  bool among_definitions() const { return around() == Kind::space || around() == Kind::type; }

  void take(char c) {
    if (c == '{') {
      open_.push_back(opened());
      statement_.clear();
    } else if (c == '}') {
      close();
    } else if (c == ';' && parentheses_ == 0) {
      end_statement();
    } else if (among_definitions()) {
      parentheses_ += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (statement_.empty() && (c == '\n' || c == ' ')) {
        return;
      }
      if (statement_.empty()) {
        statement_line_ = line_;
      }
      statement_ += c;
      if (statement_ == "public:" || statement_ == "private:" || statement_ == "protected:") {
        statement_.clear();
      }
    }
  }

  Open opened() {
    static const std::regex space(R"(^(?:inline )?namespace\b\s*([\w:]*)\s*$)");
    static const std::regex type(
        R"((?:^|[>\s])(?:class|struct|union)\s+(?:alignas\(\w+\)\s+)?(?:SPRAT_API\s+)?(?:\[\[\w+\]\]\s*)?(\w+(?:::\w+)*)\s*(?:final\s*)?(?::[^:][^()]*)?$)");
    static const std::regex enumeration(R"(^enum\s+(?:class\s+|struct\s+)?(\w+))");
    std::smatch match;
    if (!among_definitions() || parentheses_ > 0 || statement_.empty() ||
        (statement_.back() != ' ' && statement_.back() != '\n')) {
      return {.statement = statement_, .line = statement_line_};
    }
    std::string text = statement_;
    while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) {
      text.pop_back();
    }
    if (std::regex_match(text, match, space)) {
      if (match[1].length() > 0) {
        space_ = match[1];
      }
      return {.kind = Kind::space};
    }
    if (text.starts_with("enum")) {
      if (around() == Kind::space && std::regex_search(text, match, enumeration)) {
        outline_.enums.push_back({.space = space_, .name = match[1], .line = statement_line_});
      }
      return {.kind = Kind::enumeration};
    }
    if (std::regex_search(text, match, type)) {
      outline_.types.push_back({.space = space_, .name = match[1], .line = statement_line_});
      return {.kind = Kind::type, .index = outline_.types.size() - 1};
    }
    const auto parameters = text.find('(');
    if (parameters != text.npos && text.find(" = ") > parameters) {
      outline_.functions.push_back(
          {.head = text.substr(0, parameters), .line = statement_line_, .lines = 0});
      return {.kind = Kind::function, .index = outline_.functions.size() - 1};
    }
    return {.statement = statement_, .line = statement_line_};
  }

  void close() {
    if (open_.empty()) {
      return;
    }
    const Open last = std::move(open_.back());
    open_.pop_back();
    statement_ = last.statement;
    statement_line_ = last.line;
    if (last.kind == Kind::function) {
      DefinedFunction& function = outline_.functions[last.index];
      function.lines = line_ - function.line + 1;
    }
    if (last.kind == Kind::type && around() == Kind::type) {
      outline_.types[open_.back().index].members += outline_.types[last.index].members;
    }
  }

  void end_statement() {
    if (around() == Kind::type) {
      outline_.types[open_.back().index].members += members_in(statement_);
    }
    statement_.clear();
  }

  static std::size_t members_in(std::string statement) {
    static const std::regex no_member(
        R"(^\s*(?:using|typedef|static|friend|enum|template|virtual|explicit|class|struct|~)\b)");
    static const std::regex alignment(R"(\balignas\([^()]*\)\s*)"), overload(R"(\boperator\b)");
    static const std::regex value(R"(\s*=\s*[^,]*)");
    if (statement.empty() || std::regex_search(statement, no_member) ||
        std::regex_search(statement, overload)) {
      return 0;
    }
    statement = std::regex_replace(statement, alignment, "");
    statement = std::regex_replace(without_templates(statement), value, "");
    if (statement.find('(') != statement.npos || statement.find(' ') == statement.npos) {
      return 0;
    }
    return 1 + static_cast<std::size_t>(std::ranges::count(statement, ','));
  }

  const std::string code_;
  Outline outline_;
  std::vector<Open> open_;
  std::string space_;
  std::string statement_;
  std::size_t statement_line_ = 1, line_ = 1;
  int parentheses_ = 0;
};

}  // namespace

Outline outline_of(const SourceFile& file) { return Reader(file).read(); }

std::vector<std::string> spaces_of(const SourceFile& file) {
  static const std::regex opens(R"(^(?:inline )?namespace\s*([\w:]*) ?\{$)");
  std::vector<std::string> open = {""}, spaces;
  for (const std::string& line : file.lines) {
    std::smatch match;
    if (line.find("namespace") != line.npos && std::regex_match(line, match, opens)) {
      open.push_back(open.back() + (match[1].length() > 0 ? match[1].str() : "(anonymous)") + "::");
    } else if (line.starts_with("}  // namespace") && open.size() > 1) {
      open.pop_back();
    }
    spaces.push_back(open.back());
  }
  return spaces;
}

CommentShare comments_of(const SourceFile& file) {
  CommentShare share;
  for (const std::string& line : file.lines) {
    share.lines += line.find_first_not_of(' ') != line.npos ? 1 : 0;
    share.comments += line.find("//") != line.npos ? 1 : 0;
  }
  return share;
}

}  // namespace sprat::architecture
