package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
)

// Built-in roles and bindings are those of Kubernetes, as far as their resources are served, and
// stele's own. They are written into the form, so that a policy keeps those it was compiled with.

// BuiltinTeam is the team in the ids of built-in roles and bindings.
const BuiltinTeam = "builtin"

// FormVersion is the version of the form that this program writes, and the newest that it loads.
const FormVersion = 1

// Form is a compiled bundle as plain data. The log stores it, and each replica loads it. Its
// encoding is deterministic.
type Form struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	// Language is the version of CUE that the sources were evaluated with.
	Language string `json:"language"`
	// Teams are the teams with their limits, sorted by name. It is nil in forms of earlier versions of the program, which do not say
	// them.
	Teams    []Team         `json:"teams,omitzero"`
	Kinds    []schemas.Kind `json:"kinds"`
	Roles    []Role         `json:"roles,omitempty"`
	Bindings []Binding      `json:"bindings,omitempty"`
	Denies   []Deny         `json:"denies,omitempty"`
	// Authorizers is the chain; empty if it is the default one.
	Authorizers []string `json:"authorizers,omitempty"`
	// ChainSource is the position of the chain in the bundle.
	ChainSource schemas.Position `json:"chainSource,omitzero"`
	// Plugins are the plugins that the chain may name, sorted by name.
	Plugins []Plugin `json:"plugins,omitempty"`
	Flow    Flow     `json:"flow,omitzero"`
	Audit   Audit    `json:"audit,omitzero"`
	// Validations are the rules of validating admission, sorted by id.
	Validations []Validation `json:"validations,omitempty"`
	// Reviewers are the admission webhooks and the admission plugins, sorted by id.
	Reviewers []Reviewer `json:"reviewers,omitempty"`
	// Mutations are the rules of mutating admission, in their order.
	Mutations []Mutation `json:"mutations,omitempty"`
	// Quota is what resource quotas can limit besides numbers of objects.
	Quota quotas.Form `json:"quota,omitzero"`
	// Views are the lists that are kept up to date, sorted by name.
	Views []View `json:"views,omitempty"`
	// Windows are the history windows that the bundle sets, sorted by resource.
	Windows []reach.Window `json:"windows,omitempty"`
	// Retentions say how long the past of kinds is kept, as far as the bundle says it.
	Retentions []reach.Retention `json:"retentions,omitempty"`
	// Dynamic says what becomes of writes to objects that show the bundle, by the fields of its section dynamic. What it lacks is refused.
	Dynamic map[string]Dynamic `json:"dynamic,omitempty"`
	// Probes are checked by each program that loads the form.
	Probes *Probes `json:"probes,omitempty"`
}

// The modes of [Dynamic].
const (
	RefuseWrites = "Refuse" // each write that would change something is refused
	MatchWrites  = "Match"  // a write that agrees with the bundle is accepted
	AllowWrites  = "Allow"  // so is a write of what the bundle does not have
)

// Dynamic says what becomes of writes to the objects of some of Kubernetes' own kinds, which show what the bundle says.
type Dynamic struct {
	Mode   string           `json:"mode"`
	Source schemas.Position `json:"source,omitzero"`
	// Groups are the API groups of the objects that Allow accepts, as patterns: a name, "*.example.com" for all below, or "*".
	Groups []string `json:"groups,omitempty"`
	// Namespaces are the namespaces of the objects that Allow accepts, as the patterns of a [Binding].
	Namespaces []string `json:"namespaces,omitempty"`
	// Powers are what roles that Allow accepts may grant at most; nil for no limit.
	Powers []Rule `json:"powers,omitzero"`
}

// AllowsBrought reports whether clients may bring objects of a kind into a namespace, "" for none.
func (f *Form) AllowsBrought(k *brought.Kind, namespace string) bool {
	d := f.Dynamic[k.Section]
	return d.Mode == AllowWrites && (slices.Contains(d.Namespaces, "*") || inNamespace(d.Namespaces, namespace))
}

// AllowedNamespaces says into which namespaces clients may bring objects of a kind and which line says so, in parentheses after a space; "" if into none.
func (f *Form) AllowedNamespaces(k *brought.Kind) string {
	d := f.Dynamic[k.Section]
	if d.Mode != AllowWrites || slices.Contains(d.Namespaces, "*") {
		return ""
	}
	return fmt.Sprintf(" (it allows the namespaces %s at %s)", strings.Join(d.Namespaces, ", "), d.Source)
}

// DynamicDefinitions is the part of the section dynamic that is about CustomResourceDefinitions.
const DynamicDefinitions = "customresourcedefinitions"

// AllowsDefinitions reports whether clients may bring definitions of a group of their own. The groups of the server itself are never theirs.
func (f *Form) AllowsDefinitions(group string) bool {
	if Own[group] != nil || group == ViewsGroup || slices.ContainsFunc(f.Kinds, func(k schemas.Kind) bool { return k.Builtin && k.Group == group }) {
		return false
	}
	d := f.Dynamic[DynamicDefinitions]
	return d.Mode == AllowWrites && slices.ContainsFunc(d.Groups, func(pattern string) bool {
		below, wild := strings.CutPrefix(pattern, "*")
		return pattern == group || wild && strings.HasSuffix(group, below) && len(group) > len(below)
	})
}

// AllowedDefinitions says of which groups clients may bring definitions and which line says so, in parentheses after a space; "" if of none.
func (f *Form) AllowedDefinitions() string {
	d := f.Dynamic[DynamicDefinitions]
	if d.Mode != AllowWrites {
		return ""
	}
	return fmt.Sprintf(" (it allows %s at %s)", strings.Join(d.Groups, ", "), d.Source)
}

// Expression is a CEL expression that has been type-checked.
type Expression struct {
	Text string `json:"text"`
	// Checked is its AST: an encoded google.api.expr.v1alpha1.CheckedExpr.
	Checked []byte           `json:"checked"`
	Source  schemas.Position `json:"source,omitzero"`
}

// Load makes a program of the expression.
func (e *Expression) Load() (*expr.Program, error) { return expr.Load(e.Checked, e.Text) }

// LoadPatch makes a program of an expression of a mutation.
func (e *Expression) LoadPatch() (*expr.Program, error) { return expr.LoadPatch(e.Checked, e.Text) }

// Condition is an expression about a request, and perhaps about the object that it writes.
type Condition struct {
	Expression
	// Object says whether the condition reads object or oldObject. Such a condition can only be
	// decided once they are known.
	Object bool `json:"object,omitempty"`
}

// Validation is a rule of validating admission.
type Validation struct {
	ID    string `json:"id"` // team/validate/name
	Match Match  `json:"match"`
	// Params is a constant object, the CEL variable params.
	Params json.RawMessage `json:"params,omitempty"`
	// ParamSource selects stored objects, each of which is the variable params once; nil for none.
	ParamSource *ParamSource `json:"paramSource,omitempty"`
	// Objects are the kinds whose stored objects expressions read, sorted by name.
	Objects     []StoredKind      `json:"objects,omitempty"`
	Variables   []Variable        `json:"variables,omitempty"` // each after the variables it uses
	Validations []ValidationCheck `json:"validations"`
	// Actions are Deny, Warn and Audit.
	Actions []string `json:"actions"`
	// Ignore is set if expressions that cannot be evaluated count as true (failurePolicy Ignore).
	Ignore bool `json:"ignore,omitempty"`
	// Annotations are what the audit log shows of a request, sorted by name.
	Annotations []Variable       `json:"annotations,omitempty"`
	Source      schemas.Position `json:"source,omitzero"`
}

// StoredKind is a kind whose stored objects expressions read as objects.Name.
type StoredKind struct {
	Name     string           `json:"name"`
	Group    string           `json:"group"`
	Resource string           `json:"resource"`
	Version  string           `json:"version"`
	Source   schemas.Position `json:"source,omitzero"`
}

// ParamSource selects the stored objects that a rule reads as params, as paramKind and paramRef in Kubernetes.
type ParamSource struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	Version  string `json:"version"`
	// Name is the name of the object; "" if Selector selects objects.
	Name     string                `json:"name,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Namespace is that of the objects; "" for that of the request.
	Namespace string `json:"namespace,omitempty"`
	// Deny is set if the rule cannot be evaluated without such an object; otherwise it is skipped.
	Deny   bool             `json:"deny,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}

// Match selects the requests of an admission rule, as in ValidatingAdmissionPolicy: "*" is any
// resource, "*/*" includes subresources.
type Match struct {
	APIGroups     []string `json:"apiGroups"`
	APIVersions   []string `json:"apiVersions"`
	Resources     []string `json:"resources"`
	Operations    []string `json:"operations"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	// Scope is Cluster, Namespaced, or "" for both.
	Scope string `json:"scope,omitempty"`
	// Exact is set if requests for other versions of the kinds do not match (matchPolicy Exact).
	Exact bool `json:"exact,omitempty"`
	// Excludes are requests that the rule is not about.
	Excludes          []Exclude             `json:"excludes,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	ObjectSelector    *metav1.LabelSelector `json:"objectSelector,omitempty"`
	Conditions        []Variable            `json:"conditions,omitempty"`
}

// Exclude selects requests that an admission rule is not about.
type Exclude struct {
	APIGroups     []string `json:"apiGroups"`
	APIVersions   []string `json:"apiVersions"`
	Resources     []string `json:"resources"`
	Operations    []string `json:"operations"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Scope         string   `json:"scope,omitempty"`
}

// Variable is a named expression.
type Variable struct {
	Name string `json:"name"`
	Expression
}

// ValidationCheck is one expression that must be true.
type ValidationCheck struct {
	ID                string           `json:"id"` // id of the rule, /name
	Expression        Expression       `json:"expression"`
	Message           string           `json:"message,omitempty"`
	MessageExpression *Expression      `json:"messageExpression,omitempty"`
	Reason            string           `json:"reason"`
	Source            schemas.Position `json:"source,omitzero"`
}

// Mutation is a rule of mutating admission.
type Mutation struct {
	ID    string `json:"id"` // team/mutate/name
	Order int64  `json:"order"`
	Match Match  `json:"match"`
	// Params is a constant object, the CEL variable params.
	Params json.RawMessage `json:"params,omitempty"`
	// ParamSource and Objects are what the rule reads of stored objects, as in a [Validation].
	ParamSource *ParamSource   `json:"paramSource,omitempty"`
	Objects     []StoredKind   `json:"objects,omitempty"`
	Variables   []Variable     `json:"variables,omitempty"` // each after the variables it uses
	Mutations   []MutationStep `json:"mutations"`           // in their order
	// Ignore says that the rule is left out if it cannot be evaluated or applied: failurePolicy Ignore.
	Ignore bool `json:"ignore,omitempty"`
	// Reinvoke says that the rule runs again if others changed the object after it: reinvocationPolicy IfNeeded.
	Reinvoke bool             `json:"reinvoke,omitempty"`
	Source   schemas.Position `json:"source,omitzero"`
}

// The patch types of mutations.
const (
	ApplyConfiguration = "ApplyConfiguration"
	JSONPatch          = "JSONPatch"
)

// MutationStep is one change of a rule of mutating admission.
type MutationStep struct {
	ID         string           `json:"id"` // id of the rule, /name
	PatchType  string           `json:"patchType"`
	Expression Expression       `json:"expression"`
	Source     schemas.Position `json:"source,omitzero"`
}

// Expressions returns all expressions of the rule.
func (r *Mutation) Expressions() (list []Expression) {
	list = expressionsOf(r.Variables, r.Match.Conditions)
	for i := range r.Mutations {
		list = append(list, r.Mutations[i].Expression)
	}
	return list
}

// Expressions returns all expressions of the rule.
func (r *Validation) Expressions() (list []Expression) {
	list = expressionsOf(r.Variables, r.Match.Conditions, r.Annotations)
	for _, c := range r.Validations {
		list = append(list, c.Expression)
		if c.MessageExpression != nil {
			list = append(list, *c.MessageExpression)
		}
	}
	return list
}

func expressionsOf(lists ...[]Variable) (list []Expression) {
	for _, variables := range lists {
		for i := range variables {
			list = append(list, variables[i].Expression)
		}
	}
	return list
}

// Deny refuses the requests of its rules to its subjects, even if a binding grants them.
type Deny struct {
	ID       string    `json:"id"` // team/denies/name
	Subjects []Subject `json:"subjects"`
	Rules    []Rule    `json:"rules"`
	// Unless is the exception.
	Unless *Condition `json:"unless,omitempty"`
	// Reason is shown to the caller.
	Reason string           `json:"reason"`
	Source schemas.Position `json:"source,omitzero"`
}

// Role is a cluster role, including its aggregated rules.
type Role struct {
	ID     string            `json:"id"` // team/clusterRoles/name, or builtin/clusterRoles/name
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Aggregate selects, by label, the roles whose rules this role includes.
	Aggregate map[string]string `json:"aggregate,omitempty"`
	// Shown is the name of the object that shows the role; "" if that is Name. Namespace is that of the Role that shows it; "" if a ClusterRole does.
	Shown     string           `json:"shown,omitempty"`
	Namespace string           `json:"namespace,omitempty"`
	Rules     []Rule           `json:"rules"`
	Source    schemas.Position `json:"source,omitzero"`
}

// ShownName returns the name of the object that shows the role.
func (r *Role) ShownName() string { return cmp.Or(r.Shown, r.Name) }

// ShownName returns the name of the objects that show the binding: TEAM:NAME for TEAM/bindings/NAME, if it has no other one. Colons inside a
// team's name are doubled, so that the name stays unambiguous; a team's name does not start or end with a colon.
func (b *Binding) ShownName() string {
	if b.Shown != "" {
		return b.Shown
	}
	team, name, _ := strings.Cut(b.ID, "/bindings/")
	return strings.ReplaceAll(team, ":", "::") + ":" + name
}

// Rule grants verbs on resources or on paths.
type Rule struct {
	ID              string           `json:"id"` // id of the role where the rule was written, /name
	Verbs           []string         `json:"verbs"`
	APIGroups       []string         `json:"apiGroups,omitempty"`
	Resources       []string         `json:"resources,omitempty"`
	ResourceNames   []string         `json:"resourceNames,omitempty"`
	NonResourceURLs []string         `json:"nonResourceURLs,omitempty"`
	Source          schemas.Position `json:"source,omitzero"`
}

// Binding grants a role to subjects in namespaces.
type Binding struct {
	ID       string    `json:"id"` // team/bindings/name
	Role     string    `json:"role"`
	Subjects []Subject `json:"subjects"`
	// Namespaces are patterns; a "*" stands for any characters. The pattern "*" alone includes
	// cluster-scoped requests.
	Namespaces []string `json:"namespaces"`
	// Shown is the name of the objects that show the binding; "" if that follows from ID.
	Shown string `json:"shown,omitempty"`
	// When is the condition of the grant; nil means always.
	When   *Condition       `json:"when,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}

// Subject is one user or group. A service account is written as its user name.
type Subject struct {
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
}

// Encode returns the form's canonical bytes and their digest, which identifies the policy.
func (f *Form) Encode() ([]byte, [sha256.Size]byte) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		panic(fmt.Sprintf("policy: %v", err)) // plain data always encodes
	}
	return b.Bytes(), sha256.Sum256(b.Bytes())
}

// DecodeForm decodes the bytes of Encode. It rejects forms of a newer version and unknown fields,
// since these could be rules.
func DecodeForm(data []byte) (*Form, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("policy: form: %w", err)
	}
	if head.Version < 1 || head.Version > FormVersion {
		return nil, fmt.Errorf("policy: form of version %d, this program loads up to %d; use a newer one", head.Version, FormVersion)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	f := new(Form)
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("policy: form: %w", err)
	}
	return f, nil
}

// Access is the part of a form that says who may do what.
type Access struct {
	Roles       []Role    `json:"roles,omitempty"`
	Bindings    []Binding `json:"bindings,omitempty"`
	Denies      []Deny    `json:"denies,omitempty"`
	Authorizers []string  `json:"authorizers,omitempty"`
	Plugins     []Plugin  `json:"plugins,omitempty"`
}

// Access returns the access part of the form, without the programs of conditions. It shares memory
// with the form.
func (f *Form) Access() *Access {
	a := &Access{Roles: f.Roles, Bindings: slices.Clone(f.Bindings), Denies: slices.Clone(f.Denies), Authorizers: f.Authorizers, Plugins: f.Plugins}
	for i := range a.Bindings {
		a.Bindings[i].When = a.Bindings[i].When.textOnly()
	}
	for i := range a.Denies {
		a.Denies[i].Unless = a.Denies[i].Unless.textOnly()
	}
	return a
}

func (c *Condition) textOnly() *Condition {
	if c == nil {
		return nil
	}
	text := *c
	text.Checked = nil
	return &text
}

// OwningTeam returns the team in an id.
func OwningTeam(id string) string {
	team, _, _ := strings.Cut(id, "/")
	return team
}
