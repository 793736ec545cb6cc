// Command admission-plugin is an admission plugin of stele: it charges objects to a cost center of the team that creates
// them, and refuses those that cost more than the team may spend. README.md says how to build and use it.
package main

import (
	"context"
	"fmt"

	"stele.dev/stele/plugins/sdk"
)

func main() { sdk.Serve(plugin) }

var plugin = sdk.Plugin[Config]{
	Name: "cost-center", Version: "1.0.0", Schema: schema, NewAdmission: newAdmission,
}

func newAdmission(_ context.Context, config Config, _ map[string][]byte) (sdk.Admission, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	return sdk.AdmissionFunc(func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
		if r.Operation == sdk.Delete {
			return sdk.Admit(), nil
		}
		var o object
		if err := r.Decode(&o); err != nil {
			return sdk.Verdict{}, err
		}
		if r.Stage == sdk.Mutation {
			return charge(r, &o, config)
		}
		return check(&o, config), nil
	}), nil
}

// charge sets the cost center of the user's team, if the object has none.
func charge(r *sdk.Review, o *object, config Config) (sdk.Verdict, error) {
	team := config.teamOf(r.User.Groups)
	if o.Metadata.Labels[label] != "" || team == nil {
		return sdk.Admit(), nil
	}
	if o.Metadata.Labels == nil {
		o.Metadata.Labels = map[string]string{}
	}
	o.Metadata.Labels[label] = team.CostCenter
	return r.Change(o)
}

// check refuses objects of no cost center, and those that cost too much.
func check(o *object, config Config) sdk.Verdict {
	team := config.charged(o.Metadata.Labels[label])
	if team == nil {
		return sdk.Refuse(fmt.Sprintf("metadata.labels: %s: %q is no cost center", label, o.Metadata.Labels[label])).Status(422, "Invalid")
	}
	cost, err := config.cost(o)
	switch {
	case err != nil:
		return sdk.Refuse(err.Error()).Status(422, "Invalid")
	case cost > team.Limit:
		return sdk.Refuse(fmt.Sprintf("it costs %d a month, and the cost center %s may spend %d on one object", cost, team.CostCenter, team.Limit))
	case cost > team.Limit*8/10:
		return sdk.Admit().Warn(fmt.Sprintf("it costs %d of the %d a month that the cost center %s may spend on one object", cost, team.Limit, team.CostCenter)).Annotate("cost", fmt.Sprint(cost))
	}
	return sdk.Admit().Annotate("cost", fmt.Sprint(cost))
}
