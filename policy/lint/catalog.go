package lint

import (
	"slices"
	"strings"
)

// Severity says how much a lint matters.
type Severity string

// The severities, the worst first.
const (
	Error   Severity = "error"   // the bundle must not be pushed
	Warning Severity = "warning" // probably a mistake, or a power that a reviewer should know
	Note    Severity = "note"    // worth knowing
)

// A Lint is one check of a bundle.
type Lint struct {
	// ID is stable: upper-case words with "_".
	ID       string
	Severity Severity
	// Title says in one sentence what is wrong.
	Title string
	// Write says what to write instead.
	Write string
	// Long explains what it means, how it is found, and what it cannot see.
	Long string
}

// Find returns the lint with an id, in upper or lower case; nil if there is none.
func Find(id string) *Lint {
	i := slices.IndexFunc(Lints, func(l Lint) bool { return strings.EqualFold(l.ID, id) })
	if i < 0 {
		return nil
	}
	return &Lints[i]
}

// IDs returns the ids of all lints, sorted.
func IDs() []string {
	ids := make([]string, len(Lints))
	for i := range Lints {
		ids[i] = Lints[i].ID
	}
	slices.Sort(ids)
	return ids
}

// Lints are all lints, by subject. The documentation has the same table; a test compares them.
var Lints = []Lint{
	// Access.
	{"BINDING_REDUNDANT", Warning, "Other bindings grant all that a binding grants.", "leave the binding out, or give the others a condition",
		`The policy would decide the same without the binding: for each of its subjects, other bindings of the same subject, or of a group that the subject is certainly in, grant the same requests, without a condition or with the same one. A condition of the binding then has no effect. It is found by computing with sets of requests, not by trying requests. Conditions are compared as text. Of two bindings that are the same, the later one is reported.`},
	{"DENY_REDUNDANT", Warning, "Other denies refuse all that a deny refuses.", "leave the deny out, or give the others an exception",
		`The policy would decide the same without the deny, except for the reason that users see. An exception of the deny then has no effect, because another deny refuses the request all the same. It is found by computing with sets of requests. Exceptions are compared as text.`},
	{"RULE_REDUNDANT", Warning, "Other rules of a role or a deny name all requests of a rule.", "leave the rule out, or narrow the others",
		`The role grants the same without the rule. Often the other rule is broader than its author meant, for example a "*" in resources. It is found by computing with sets of requests.`},
	{"ROLE_UNUSED", Warning, "No binding grants a role, and no role includes it.", "bind the role, or leave it out",
		`The role grants nothing to anybody. A role with labels that another role aggregates counts as used. In a module with several bundles a role may be used in one of them only: allow it at its line then.`},
	{"GRANT_WILDCARD", Warning, "A role that somebody has grants all verbs, resources, API groups or paths.", "name what is meant",
		`A "*" also grants what does not exist yet: kinds, subresources and verbs that are added later. "*" as a verb includes deletecollection, history, escalate, bind and impersonate. Bindings of built-in roles with a "*" are reported at the binding. Rules of denies are not reported.`},
	{"GRANT_NEVER_APPLIES", Warning, "A rule of a role names only what is outside of namespaces, and the role is granted in namespaces.", "namespaces: [\"*\"] in the binding, which only a team over all namespaces may write, or leave the rule out",
		`Kinds with scope "Cluster", views with groupBy, and paths are in no namespace. A binding with patterns of namespaces grants requests in these alone, so that the rule never applies. It is reported if no binding of the role is for "*". Rules with a "*" in apiGroups or resources are not reported.`},
	{"GRANT_ESCALATES", Warning, "A role that somebody has lets its users give themselves more rights, or act as others.", "grant it to fewer, or name roles and users in resourceNames",
		`Its users can get rights that the policy does not grant them by name: by create on policies (they can replace the policy), escalate or bind on roles, impersonate on users, groups, uids, userextras or serviceaccounts, or create on serviceaccounts/token. A "*" that includes one of these counts. Rules with resourceNames count with these names, except for create on policies: a push has no name, so that such a rule does not allow it. Reading Secrets is not reported, although a Secret may hold a token.`},
	{"DENY_MEETS_CONTROLLERS", Warning, "A deny stops the server's own controllers.", "the `unless` in the warning",
		`The server's own controllers delete what is in a namespace, collect garbage, and make service accounts and tokens. Denies are for everybody, so that one for system:authenticated stops them: a namespace would stay in Terminating. It is found by trying the requests of the controllers in up to 16 namespaces, so that an exception for other namespaces is not seen.`},
	{"DENY_LEAVES_OPEN", Note, "A deny refuses one way to do something, and leaves another one open.", "the other verbs or resources in the rules of the deny",
		`Requests of another verb or resource have the effect of those that the deny refuses, and no deny refuses them to the same subjects: deletecollection for delete, patch for update and the reverse, list and watch for get, each other for list and watch, events of the other of the API groups "" and events.k8s.io, and writes of the subresource scale for those of the object and the reverse. A deny of deletecollection alone is not reported, because it is for deletes of many objects at once. Whether a binding grants the other requests is not looked at. It is found by computing with sets of requests; exceptions are compared as text.`},
	{"DENY_MEETS_LOG", Warning, "A deny refuses reads to users who may read the log.", "a deny of the nonResourceURLs `/log/*` beside it, or a role without these paths",
		`The paths below /log/ that backups read, and /log/proof/contents, have the contents of all objects as they are stored, so that they cannot be left out for some users. The deny refuses the objects to a subject who may get one of these paths, for example by nonResourceURLs "*" of cluster-admin or as a member of system:masters. It is found by trying a read of each rule of the deny, for each subject that may get the paths, in up to 16 namespaces. That a user may be in two groups is not looked at.`},
	{"LOCKOUT", Warning, "An authorizer outside of the policy is asked before administrators are let in.", "put `system:masters` in front of it",
		`If the plugin or webhook denies, or cannot be asked, it also refuses those who would mend that.`},
	{"WEBHOOK_WIDE", Warning, "A webhook that must be asked is asked about writes of every group and every namespace.", "name groups and resources, or give it a selector",
		`With failurePolicy Fail, nothing can be written while the webhook cannot be asked, not even what it needs itself to start.`},
	{"WEBHOOK_SLOW", Warning, "A webhook that must be asked has more than 10 seconds for an answer.", "a shorter timeoutSeconds, or failurePolicy Ignore",
		`With failurePolicy Fail, each write that it matches waits for so long when the webhook does not answer. Clients often give up sooner.`},
	{"AUTHORIZER_LEFT_OUT", Warning, "`authorizers` lacks `deny` or `rbac`.", "put the name into `authorizers`",
		`Without "deny" no deny of the bundle has an effect. Without "rbac" no role and no binding grants anything.`},
	{"DENY_LATE", Warning, "`deny` is not the first of `authorizers`.", "put `deny` first",
		`What an authorizer in front of it allows is not denied.`},
	{"PLUGIN_UNUSED", Warning, "A plugin is declared, and nobody asks it.", "put it into `authorizers`, name it in the `admission` of a team, or leave it out",
		`Nobody asks the plugin.`},

	// Traffic.
	{"FLOW_UNREACHED", Warning, "Earlier flow schemas match all requests of a flow schema.", "give it a lower matchingPrecedence, or leave it out",
		`The first flow schema that matches a request decides. For each subject of this one, earlier ones match all of its requests, so that none is left. Built-in flow schemas are earlier ones, too: exempt takes all requests of system:masters. Or the flow schema has no subjects or no rules. It is found by computing with sets of requests. A group counts as part of another one only if all of its members are certainly in that, such as in system:authenticated.`},
	{"FLOW_TIED", Warning, "Two flow schemas with the same matchingPrecedence match the same requests.", "another matchingPrecedence for one of them",
		`The one whose name is first in the alphabet is tried first, so that a new name may change which flow schema requests are of. The finding names requests that both match. It is found by computing with sets of requests. Somebody may be in any two groups, so that flow schemas of different groups are reported, too. Built-in flow schemas are compared as well.`},
	{"FLOW_UNDIVIDED", Warning, "`distinguisher: ByNamespace` has no effect.", "`ByUser`, or leave it out",
		`The rules of the flow schema match paths, requests outside of namespaces, or resources that are not in namespaces. All of its requests have the namespace "" and are one flow, so that they wait for each other.`},
	{"PRIORITY_LEVEL_UNUSED", Warning, "No flow schema names a priority level.", "name it in a flow schema, or leave it out",
		`The level has a share of the server's seats that only others use, as far as it lends them. Built-in flow schemas that are not replaced count.`},
	{"AUDIT_UNREACHED", Warning, "An earlier audit rule matches all requests of an audit rule.", "give it a lower order, or leave it out",
		`The first audit rule that matches a request decides its level. Every request of the rule, as far as rules can tell requests apart, is matched by a rule with a lower order. It is found by classifying a request for each combination of the names in the rule. A group counts as part of another one only if all of its members are certainly in that. A rule with more than 20,000 combinations is not examined.`},
	{"AUDIT_SECRETS", Note, "An audit rule records the contents of objects that hold secrets.", "the level Metadata for these resources, in a rule before it",
		`The rule has the level Request or RequestResponse, and some request for Secrets, or for a kind with a field that is marked @stele(sensitive), is recorded by it. In place of the secret values the audit log has keyed hashes, which show whether two values are the same. The keys of a Secret, and the fields that are not marked, are in the audit log as they are.`},
	{"AUDIT_SECRET_READS", Note, "Audit rules do not record reads of Secrets, or of another kind with secret fields.", "a rule with the level Metadata for these kinds, before one that leaves reads out",
		`The policy has audit rules, and a user whom none of them names can get, list or watch Secrets, or a kind with a field that is marked @stele(sensitive), without a record in the audit log: no rule matches the read, or the first one that does has the level None. Without audit rules such reads are recorded.`},

	// Expressions.
	{"CEL_ALWAYS_TRUE", Warning, "An expression in CEL is always true.", "write what is meant, or leave it out",
		`The expression is true whatever the request and the object are, so that it has no effect: a validation refuses nothing, and a condition always holds. It is found by evaluating the expression while all variables are unknown.`},
	{"CEL_NEVER_TRUE", Warning, "An expression in CEL is never true.", "write what is meant; to refuse everything, write `false`",
		`The expression is false whatever the request and the object are: a validation refuses every request that its rule matches, a grant is never given, an exception is never made. The literal "false" of a validation is not reported. It is found by evaluating the expression while all variables are unknown.`},
	{"CONDITION_ALWAYS_HOLDS", Warning, "The schema makes a condition or an expression always true.", "leave it out, or compare with another value",
		`The expression compares a field of the object with a constant, and every value that the schema admits satisfies it: a validation refuses nothing, a condition has no effect. It is found from the enumerations and bounds of the schema, for conditions of bindings and denies, match conditions and admission rules, not for the rules of kinds. Only comparisons of a field with constants are read; every other part of the expression may be true or false. Conditions of a binding or a deny that names no kind by its resource are not judged.`},
	{"CONDITION_NEVER_HOLDS", Warning, "The schema makes a condition or an expression never true.", "compare with a value that the schema admits, or change the schema",
		`The expression compares a field of the object with a constant that the schema never admits, for example a misspelt value of an enumeration: a validation refuses every object, a grant is never given, an exception is never made. It is found as CONDITION_ALWAYS_HOLDS is. An object that was stored under an earlier schema may have the value.`},
	{"CEL_UNREACHED", Warning, "A part of an expression in CEL never matters.", "leave the part out, or correct the other one",
		`Another operand of &&, || or ?: is always true or always false, so that this part does not decide anything. A variable that nothing reads is reported, too.`},
	{"OPTIONAL_UNTESTED", Warning, "CEL selects an optional field without `has()`.", "`!has(object.spec.standby) || …`",
		`For an object without the field the expression cannot be evaluated. A rule then refuses the object, with a message that does not help its author. It is found by comparing the paths in the expression with the schema. Only the first such field of an expression is reported.`},

	{"OBJECTS_LISTED", Warning, "A rule lists stored objects without a name, labels or a field.", "`objects.databases.where(\"spec.owner\", …).list()`; `exists()` or `count()`",
		`The list fails once there are more than 1000 objects, and it depends on each change of any of them: writes that race with such a change are decided again.`},
	{"OBJECTS_SECRET", Warning, "A rule reads stored objects that hold secrets.", "a rule that does not read them",
		`Whoever may write what the rule is about learns something of the secrets: from the message, or from being refused. It is reported for built-in kinds that hold secrets, and for kinds with a field that is @stele(sensitive), as objects and as params.`},

	// Rules that change objects.
	{"MUTATIONS_FIGHT", Warning, "Two rules of `mutate` set a field to different values, each again after the other.", "conditions that exclude each other, or `!has(object.spec.size)` in the earlier one",
		`The later one wins, and a rule that is reinvoked can change the result again. If the second is meant to correct the first, let the first one leave alone what is set. It is found by running both on generated writes, one of which the finding shows. Rules that read stored objects, plugins and webhooks are not tried.`},
	{"MUTATION_REPEATS", Warning, "A rule of `mutate` with the reinvocationPolicy IfNeeded changes its own result.", "a condition that is false for what the rule has made, or `reinvocationPolicy: \"Never\"`",
		`A rule that is reinvoked runs twice on one write, for example if a webhook changed the object after it. One that adds an item to a list then adds two. It is found by running the rule on its own result for generated writes, one of which the finding shows.`},
	{"MUTATION_REFUSED", Warning, "What a rule of `mutate` makes is always refused.", "another change, or another validation",
		`A validation with the action Deny, the schema, or a rule of the kind refuses the object that the rules of mutate make of it, in all generated writes that the rule changes, and does not refuse what is made without the rule. That nothing else was found among the generated writes is no proof.`},
	{"MUTATION_FAILS", Warning, "A change of a rule of `mutate` can never be made.", "a path that exists: a patch that adds a field adds the struct around it first",
		`The expression cannot be evaluated, or the patch does not fit, for all generated writes that the rule is about, so that they are refused. Rules with the failurePolicy Ignore are not reported.`},
	{"MUTATION_DROPPED", Warning, "A change of a rule of `mutate` sets only what the write cannot change, or what the kind does not have.", "a rule for the subresource, such as `resources: [\"databases/status\"]`",
		`A write of the object keeps the status and what the server sets in metadata, one of the status keeps the rest, and one of the scale changes the replicas only. What a rule changes elsewhere is dropped without an error, as in Kubernetes.`},

	// Schemas.
	{"DEFAULT_NEVER_APPLIES", Warning, "A default stands beside `!` or `?`, where it never applies.", "the field without the mark",
		`A required field must be given, and an optional one may be missing: CUE fills in neither.`},
	{"DEFAULTS_CONFLICT", Warning, "A field has several defaults, so that none applies.", "one `*`",
		`CUE needs one default. With two different ones a field that is left out has no value, and the object is refused.`},
	{"DEFAULT_OUTSIDE", Warning, "A default has another type than the field, or is out of its bounds.", "another default; or the value as an alternative, too: `*0 \\| 0 \\| int & >=5`",
		`In CUE a default is an alternative of its own, so that the field admits the default although the other alternatives do not. It is reported for numbers, strings and booleans.`},
	{"ALTERNATIVE_COVERED", Warning, "A value is named beside a type that admits it.", "the values alone, or the type alone",
		`"a" | "b" | string takes any string: the values have no effect, and a typo in an object is accepted. A default beside its type, such as *"a" | string, is not reported, as it has an effect.`},
	{"ALTERNATIVE_EMPTY", Warning, "An alternative admits no value.", "other bounds",
		`The bounds of the alternative exclude each other, so that only the default is left.`},
	{"FIELD_NEVER_SET", Warning, "A part of a struct declares an optional field, and another part is closed to it.", "the closed part embedded, `{#name, ...}`, in place of `#name &`",
		`CUE refuses each value of the field. Two definitions that are joined with & leave the fields that both have.`},
	{"DEFAULT_VIOLATES", Warning, "The defaults of a kind violate a validation of the kind.", "another default, or another validation",
		`An object that leaves out the fields is refused by a rule that reads nothing but their defaults. It is found by making the smallest object that the schema admits, filling in the defaults, and evaluating the CEL rules of the kind. Rules that also read fields that the author of an object gives are not judged.`},
	{"SCHEMA_OPENAPI", Warning, "A part of a schema is written in the words of OpenAPI.", "CUE: `size?: int & >=1` in place of `size?: {type: \"integer\", minimum: 1}`",
		`In CUE, type, properties and minimum are fields like others: objects would need a field "type" with the value "integer". It is reported where type is the name of a type of OpenAPI, and nothing but words of OpenAPI stands beside it.`},
	{"GROUP_OF_KUBERNETES", Warning, "A kind is in an API group that Kubernetes has for its own kinds.", "a group under a domain of yours",
		`The groups apps, autoscaling, batch, extensions and policy are Kubernetes' own. kubectl can use the kind, but clients with Kubernetes' types send Protocol Buffers, and take the objects for those of Kubernetes. If a later version of stele has Kubernetes' kind, the bundle does not compile any more.`},
	{"SHORT_NAME_TAKEN", Warning, "A short name of a definition in `crds` is another kind's, too.", "nothing: clients use the full name",
		`kubectl chooses one of the kinds. For kinds in CUE it is an error.`},
	{"CUE_FALLBACK", Note, "Only CUE itself can check a part of a schema.", "a form that is compiled, see the table of `#schema`",
		`Each write waits for a process that runs CUE, some tenths of a millisecond or more. The part is named. --verbose shows how long CUE takes.`},
	{"DEFINITION_PART_UNUSED", Warning, "A part of a definition in `crds` has no effect.", "nothing, or leave it out",
		`A version that is neither served nor stored, a webhook that has nothing to convert, or a column that cannot be shown.`},
	{"QUOTA_NO_QUANTITY", Warning, "A quota sums a field that may hold what is no quantity.", "`@k8s(format=quantity)` at the field, or a narrower pattern",
		`With an object that has such a value, each later write in a namespace with that quota is refused, as the sum is not known. It is found by comparing the field's regular expressions and values with the spelling of quantities.`},

	// Secrets and history.
	{"SECRET_IN_MESSAGE", Warning, "A message or an audit annotation shows a field that is `@stele(sensitive)`.", "a message or an annotation without the value",
		`The messageExpression of a rule reads a secret field, so that the answer and the audit log show it. Paths through variables of the rule are followed; what a webhook or plugin says is not known.`},
	{"VIEW_SHOWS_SECRET", Warning, "A view reads a field that is `@stele(sensitive)`, or is of a built-in kind that holds secrets.", "a view without the value",
		`Access to a view is that of the view: its readers see its columns, and need no right to read the kind. A filter, a sort or an aggregate shows something of a secret field, too. Allow it at its line if that is meant.`},
	{"VIEW_UNREAD", Warning, "Nobody but system:masters may read a view.", "a rule with apiGroups `views.stele.dev` and the view in resources",
		`No binding of the bundle grants get, list or watch of the view. The right to read its kind does not count, because a view has access of its own. Built-in roles do not include views.`},
	{"SECRET_HISTORY", Warning, "A history window opens the past of objects that hold secrets.", "a shorter window",
		`Whoever may read the objects now may read all that they ever held.`},

	// Files.
	{"FILE_NAME", Warning, "A file name is almost one of CUE's.", "`access.cue`",
		`CUE reads only files whose names end in .cue, so that the file is not part of the bundle.`},
	{"DEFINITION_UNUSED", Warning, "No file embeds a CustomResourceDefinition of the module.", "`@embed(file=…)` in `crds` of a team",
		`The definition is not part of the bundle.`},
	{"FILE_UNCOMMITTED", Note, "A file differs from the commit that is checked out.", "commit it; `--require-clean` makes it an error",
		`A push names the commit with "+changes". Only changed files of the module, and files of the bundle that git does not track, are reported. Without git or a commit nothing is reported.`},
	{"DEFINITIONS_DIFFER", Warning, "The module's copy of the definitions of the format is not this program's.", "`stele policy vendor`, or copy the file",
		`Editors and cue vet read the copy below cue.mod/pkg/stele.dev; stele reads its own. They may then disagree about what is valid.`},
	{"ACCEPT_EXPIRED", Warning, "An entry of accept.cue has expired.", "leave it out, or set a later date",
		`The entry accepts nothing any more, so that the next plan with the finding fails.`},

	// About vet itself.
	{"ALLOW_UNKNOWN", Error, "A comment `stele:allow` names no lint.", "an id of this table, and a reason",
		`The comment has no effect. It is written // stele:allow ID reason, on the line of the finding or the line above it; several ids are separated by commas.`},
	{"ALLOW_UNUSED", Warning, "A comment `stele:allow` allows nothing.", "leave the comment out",
		`There is no such finding at its line. In a module with several bundles another one may have the finding: the comment is reported only in the bundle's own package and in packages that no other bundle uses.`},
	{"NOT_CHECKED", Note, "Something was not checked, because it would take too long.", "a smaller bundle, or fewer overlapping rules",
		`The work of each lint is limited. What it did not look at may be wrong.`},
}
