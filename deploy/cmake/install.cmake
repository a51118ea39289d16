# Install rules are completed by the packaging files beside this one.
