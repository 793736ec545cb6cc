package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/conformance"
)

func pluginBenchCommand() *cobra.Command {
	var o pluginOptions
	var tableFile string
	callers, lasting := []int{1, 8, 64}, 3*time.Second
	cmd := &cobra.Command{
		Use:   "bench PROGRAM",
		Short: "Measure a plugin: calls a second, and how long they take",
		Long: `Bench asks a plugin for decisions over the connection that serve has, and nothing else: what
serve answers from its cache, and what it asks once for many, takes less.`,
		Example: `  stele plugin bench ./change-window --table decisions.yaml`,
		Args:    exactly("PROGRAM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lasting <= 0 || slices.ContainsFunc(callers, func(n int) bool { return n < 1 }) {
				return errors.New("--duration and --callers are more than 0")
			}
			var table *conformance.Table
			if tableFile != "" {
				var err error
				if table, err = conformance.ReadTable(tableFile); err != nil {
					return err
				}
			}
			p, err := o.openProgram(cmd, args[0])
			if err != nil {
				return err
			}
			subject, err := o.subject(cmd, p, table)
			if err != nil {
				return err
			}
			i, err := subject.Configured(cmd.Context())
			if err != nil {
				return err
			}
			defer i.Close()
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "callers\tcalls/s\tp50\tp99\tmax\t")
			for _, n := range callers {
				took, elapsed, err := measure(cmd.Context(), i, subject.AllRequests(), n, lasting)
				if err != nil {
					return err
				}
				at := func(percent int) time.Duration {
					return took[(len(took)-1)*percent/100].Round(time.Microsecond)
				}
				fmt.Fprintf(w, "%d\t%.0f\t%v\t%v\t%v\t\n", n, float64(len(took))/elapsed.Seconds(), at(50), at(99), at(100))
			}
			return w.Flush()
		},
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&tableFile, "table", "", "decision table, with requests, configuration and secrets")
	f.IntSliceVar(&callers, "callers", callers, "how many ask at once, one measurement after the other")
	f.DurationVar(&lasting, "duration", lasting, "how long each measurement takes")
	_ = cmd.MarkFlagFilename("table", "yaml", "yml", "json")
	return cmd
}

// measure has callers ask one call after the other, and returns how long each took, sorted.
func measure(ctx context.Context, i *conformance.Instance, requests []*authorizerpb.AuthorizeRequest, callers int, lasting time.Duration) (took []time.Duration, elapsed time.Duration, err error) {
	each, errs := make([][]time.Duration, callers), make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for n := caller; errs[caller] == nil; n++ {
				asked := time.Now()
				if n > caller && asked.Sub(began) >= lasting {
					return
				}
				_, errs[caller] = i.Authorize(ctx, requests[n%len(requests)])
				each[caller] = append(each[caller], time.Since(asked))
			}
		})
	}
	wg.Wait()
	elapsed = time.Since(began)
	took = slices.Concat(each...)
	slices.Sort(took)
	return took, elapsed, errors.Join(errs...)
}
