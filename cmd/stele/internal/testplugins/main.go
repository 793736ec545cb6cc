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
	case "stamp":
		stamp()
	case "scribble":
		scribble()
	default:
		fmt.Fprintf(os.Stderr, "%s: want to be called curfew, sloppy, stamp or scribble\n", name)
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

// stamp serves a plugin that labels objects, and refuses those that are labelled as secret. Names of objects make it fail.
func stamp() {
	type config struct {
		Ink string `json:"ink"`
	}
	type object struct {
		Metadata struct {
			Labels map[string]string `json:"labels,omitempty"`
		} `json:"metadata"`
	}
	sdk.Serve(sdk.Plugin[config]{
		Name: "stamp", Version: "2.0.0", Schema: "#Config: ink!: \"black\" | \"blue\"\n",
		NewAdmission: func(_ context.Context, c config, _ map[string][]byte) (sdk.Admission, error) {
			if c.Ink != "black" && c.Ink != "blue" {
				return nil, fmt.Errorf("no ink is %q", c.Ink)
			}
			return sdk.AdmissionFunc(func(ctx context.Context, r *sdk.Review) (sdk.Verdict, error) {
				switch r.Name {
				case "ghost":
					panic("boo")
				case "sleeper":
					<-ctx.Done()
					return sdk.Verdict{}, ctx.Err()
				case "killer":
					os.Exit(3)
				}
				var o object
				if r.Operation == sdk.Delete || r.Decode(&o) != nil {
					return sdk.Admit(), nil
				}
				if r.Stage == sdk.Validation && o.Metadata.Labels["secret"] != "" {
					return sdk.Refuse("it is secret").Warn("somebody may have seen it").Status(422, "Invalid"), nil
				}
				if r.Stage == sdk.Validation {
					return sdk.Admit().Annotate("ink", c.Ink), nil
				}
				if o.Metadata.Labels == nil {
					o.Metadata.Labels = map[string]string{}
				}
				o.Metadata.Labels["stamped"] = c.Ink
				return r.Change(&o)
			}), nil
		},
	})
}

// scribble serves a plugin that fails the checks of admission plugins.
func scribble() {
	var calls atomic.Int64
	sdk.Serve(sdk.Plugin[map[string]any]{
		Name: "scribble", Version: "0",
		NewAdmission: func(context.Context, map[string]any, map[string][]byte) (sdk.Admission, error) {
			return sdk.AdmissionFunc(func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
				if r.Stage == "" {
					os.Exit(3)
				}
				return sdk.Patch(fmt.Appendf(nil, `[{"op":"replace","path":"/metadata/name","value":"x%d"}]`, calls.Add(1))), nil
			}), nil
		},
	})
}
