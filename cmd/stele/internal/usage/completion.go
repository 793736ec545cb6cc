package usage

import "github.com/spf13/cobra"

// NoFiles tells the shell not to offer file names.
const NoFiles = cobra.ShellCompDirectiveNoFileComp
