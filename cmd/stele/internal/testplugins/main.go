// Command testplugins has the plugins of the program's tests. Its file name chooses the plugin. The program is small
// because a server hashes and copies each plugin that it starts.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"stele.dev/stele/plugins/sdk"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "curfew":
		curfew()
	case "sloppy":
		sloppy()
	default:
		fmt.Fprintf(os.Stderr, "%s: want to be called curfew or sloppy\n", name)
		os.Exit(2)
	}
}

// curfew serves a plugin that denies requests of children in the evening. It also prints to standard output, which plugins
// should not do, and which must do no harm.
func curfew() {
	type config struct {
		Hour int `json:"hour"`
	}
	fmt.Println("good morning")
	sdk.Serve(sdk.Plugin[config]{
		Name: "curfew", Version: "1.2.3", Secrets: []string{"lullaby"}, Deterministic: true,
		Schema: "#Config: {\n\t// In UTC.\n\thour!: int & >=0 & <24\n}\n",
		New: func(_ context.Context, c config, secrets map[string][]byte) (sdk.Authorizer, error) {
			fmt.Println("the lullaby has", len(secrets["lullaby"]), "letters")
			return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
				switch {
				case r.User.Name == "ghost":
					panic("boo")
				case len(r.User.Groups) > 0 && r.User.Groups[0] == "children" && r.Time.UTC().Hour() >= c.Hour:
					return sdk.Deny("it is late"), nil
				case r.User.Name == "parent":
					return sdk.Allow("who else"), nil
				}
				return sdk.NoOpinion(), nil
			}), nil
		},
	})
}

// sloppy serves a plugin that fails the checks of `stele plugin check`.
func sloppy() {
	var calls atomic.Int64
	sdk.Serve(sdk.Plugin[map[string]any]{
		Name: "sloppy", Version: "0", Deterministic: true,
		New: func(context.Context, map[string]any, map[string][]byte) (sdk.Authorizer, error) {
			return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
				switch {
				case r.User.Name == "":
					os.Exit(3)
				case calls.Add(1)%2 == 0:
					return sdk.Deny("I do not like it"), nil
				}
				return sdk.Allow(""), nil
			}), nil
		},
	})
}
