package backup

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/eventlog/backup"
)

type listOptions struct{ placeFlags }

func listCommand() *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use:   "list PLACE",
		Short: "List the backups of a place",
		Long: `List shows the backups of a place, the oldest first: up to which revision and time each goes, the
size of all its files, how much of that it added to the place, and whether it is encrypted and has
the keys. A backup whose manifest is damaged is named on standard error, and the exit code is 1.`,
		Example:           `  stele backup list /var/backups/stele`,
		Args:              usage.Exactly("PLACE"),
		ValidArgsFunction: completePlaces,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.addFlags(cmd, "json", "yaml", "name")
	return cmd
}

// listed is a backup in the output of list for programs.
type listed struct {
	Name      string    `json:"name"`
	Log       string    `json:"log"`
	Revision  uint64    `json:"revision"`
	Epoch     uint64    `json:"epoch"`
	Time      time.Time `json:"time"`
	Created   time.Time `json:"created"`
	Size      int64     `json:"size"`
	NewBytes  int64     `json:"newBytes"`
	Encrypted bool      `json:"encrypted"`
	Keys      bool      `json:"keys"`
	Error     string    `json:"error,omitempty"`
}

func (o *listOptions) run(cmd *cobra.Command, name string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	place, err := buckets.Open(ctx, name)
	if err != nil {
		return err
	}
	defer place.Close()
	found, err := backup.List(ctx, place, o.patience(func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }))
	if err != nil {
		return err
	}
	var items []listed
	logs, bad := map[string]bool{}, false
	for _, f := range found {
		logs[f.Log] = true
		item := listed{Name: f.Name, Log: f.Log}
		if m := f.Manifest; m != nil {
			item.Revision, item.Epoch, item.Time, item.Created = m.Head.Revision, m.Head.Epoch, m.HeadTime, m.Created
			item.Size, item.NewBytes, item.Encrypted, item.Keys = m.Size(), m.NewBytes, m.Encrypted(), len(m.Keys) > 0
		} else {
			item.Error, bad = f.Err.Error(), true
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		o.Hint(cmd, "%s has no backups; `stele backup create` makes one.", name)
	}
	err = o.Print(cmd, items, func(out *show.Output) error { return listTable(out, cmd, items, len(logs) > 1) }, func(out *show.Output) error {
		for _, i := range items {
			fmt.Fprintln(out, i.Name)
		}
		return nil
	})
	if err == nil && bad {
		return usage.Exit(usage.ExitFailure, errors.New("some backups cannot be used"))
	}
	return err
}

// listTable prints backups as a table, with the log's ID if there are several logs.
func listTable(out *show.Output, cmd *cobra.Command, items []listed, several bool) error {
	table := &show.Columns{Out: out}
	header := []string{"NAME", "REVISION", "TIME", "SIZE", "NEW", "ENCRYPTED", "KEYS"}
	if several {
		header = append([]string{"LOG"}, header...)
	}
	headed := false
	for _, i := range items {
		if i.Error != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), i.Error)
			continue
		}
		if !headed {
			table.Header(header...)
			headed = true
		}
		row := []show.Cell{{Text: i.Name}, {Text: fmt.Sprint(i.Revision)}, {Text: out.Time(i.Time)}, {Text: show.Bytes(i.Size)}, {Text: show.Bytes(i.NewBytes)}, {Text: yesNo(i.Encrypted)}, {Text: yesNo(i.Keys)}}
		if several {
			row = append([]show.Cell{{Text: i.Log[:min(8, len(i.Log))]}}, row...)
		}
		table.Add("", row...)
	}
	return table.Flush()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
