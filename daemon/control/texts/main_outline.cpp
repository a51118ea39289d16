#include "daemon/control/texts/main_outline.hpp"

#include <CLI/CLI.hpp>

namespace muster::control {
namespace {

CommandOutline::Option outline(const CLI::Option& option) {
  CommandOutline::Option out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.positional = option.get_positional();
  if (out.positional) out.names.push_back(option.get_name(true));
  out.value = option.get_items_expected_max() == 0 ? "" : option.get_type_name();
  out.sentence = option.get_description();
  out.fallback = option.get_default_str();
  out.repeated = option.get_items_expected_max() > 1;
  out.required = option.get_required();
  return out;
}

CommandOutline outline(const CLI::App& app, const std::string& parent) {
  CommandOutline out;
  out.name = app.get_name();
  out.path = parent + (parent.empty() ? "" : " ") + out.name;
  out.sentence = app.get_description();
  out.footer = app.get_footer();
  out.takes_program = app.get_prefix_command();
  for (const CLI::Option* option : app.get_options())
    if (option->get_group() != kHidden) out.options.push_back(outline(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    out.commands.push_back(outline(*command, out.path));
  return out;
}

}  // namespace

CommandOutline outline(const CLI::App& app) {
  return outline(app, "");
}

void add_examples(const std::vector<Fact>& examples, CommandOutline& outline) {
  for (CommandOutline& command : outline.commands) add_examples(examples, command);
  if (!outline.commands.empty()) return;
  for (const Fact& example : examples)
    if (example.name == outline.path || example.name.starts_with(outline.path + " "))
      outline.examples.push_back(example);
}

}  // namespace muster::control
