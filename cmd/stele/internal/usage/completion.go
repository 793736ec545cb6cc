package usage

import "github.com/spf13/cobra"

const NoFiles = cobra.ShellCompDirectiveNoFileComp
