package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// spareLife is how long the spare certificate is valid: long enough that a node
// forgotten over night can still be healed from its journal.
const spareLife = 24 * time.Hour

// stageSpares puts into every target the certificate with which it is repaired:
// signed by the cluster's CA and past its rotation deadline. The kubelet is
// healthy with it at once and asks for a regular one, which proves that approver,
// signer and the store work again. Neither CA nor API is needed when it is used.
func (r *run) stageSpares(ctx context.Context) error {
	t := r.target
	ca, err := readAuthority(ctx, t.ControlPlane)
	if err != nil {
		return err
	}
	t.ca = ca
	staged := map[string]bool{}
	for _, n := range append([]Node{t.ControlPlane}, t.Nodes...) {
		if staged[n.Name] {
			continue
		}
		staged[n.Name] = true
		// On disk before the folder is there: what a killed runner staged goes too.
		if err := r.journal.Clean(cleanStep(n.Name, r.id)); err != nil {
			return err
		}
	}
	if _, err := t.ControlPlane.script(ctx, nil, "mkdir -p "+stage(r.id)); err != nil {
		return fmt.Errorf("staging on %s: %w", t.ControlPlane.Name, err)
	}
	for _, n := range t.Nodes {
		pem, err := ca.rotateNow(n.Name, spareLife)
		if err != nil {
			return err
		}
		if _, err := n.script(ctx, pem, fmt.Sprintf("set -e\numask 077\nmkdir -p %[1]s\ncat > %[1]s/spare.pem\nsync %[1]s/spare.pem", stage(r.id))); err != nil {
			return fmt.Errorf("staging the spare certificate on %s: %w", n.Name, err)
		}
	}
	return nil
}

// repairSteps bring a target back whatever state it is in: expired, crash-looping
// or with files made unusable. They need nothing but the node itself.
func (r *run) repairSteps() []Step {
	var steps []Step
	for _, n := range r.target.Nodes {
		steps = append(steps,
			Step{Desc: "installing the spare certificate", On: n.Name, Script: inStage(r.id, "systemctl stop kubelet\n"+installScript("spare.pem", "flatline-spare.pem"))},
			Step{Desc: "starting the kubelet", On: n.Name, Script: inStage(r.id, "at=$(date +%s.%N)\nsystemctl reset-failed kubelet 2>/dev/null\nsystemctl start kubelet && echo $at")})
	}
	return steps
}

// snapshotScript prints what a run must leave as it found it.
const snapshotScript = `
echo kubelet=$(systemctl is-active kubelet)
echo kubeconfig=$(sha256sum < /etc/kubernetes/kubelet.conf | cut -c1-16)
echo bootstrap=$([ -e /etc/kubernetes/bootstrap-kubelet.conf ] && echo present || echo absent)
echo dropins=$(cd /etc/systemd/system/kubelet.service.d && ls | tr '\n' ' ')
echo link=$([ -L /var/lib/kubelet/pki/kubelet-client-current.pem ] && [ -e /var/lib/kubelet/pki/kubelet-client-current.pem ] && echo good || echo bad)
echo ours=$(ls /var/lib/kubelet/pki | grep -c '^flatline-')
echo pending=$([ -e /var/lib/kubelet/pki/kubelet-client-updated.pem ] && echo present || echo absent)
echo staged=$(ls /var/lib/flatline 2>/dev/null | tr '\n' ' ')
echo timers=$(systemctl list-units --all --no-legend 'flatline-*' | wc -l)
`

// snapshot records what a target and the cluster look like, before or after.
func (r *run) snapshot(ctx context.Context, when string) {
	for _, n := range append([]Node{r.target.ControlPlane}, r.target.Nodes...) {
		d := map[string]string{"when": when}
		out, err := n.script(ctx, nil, snapshotScript)
		if err != nil {
			d["unreadable"] = err.Error()
		}
		for line := range strings.Lines(out) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				d[k] = v
			}
		}
		r.fact(judge.TypeSnapshot, "node "+n.Name, d)
	}
	d := map[string]string{"when": when}
	if b, err := r.target.Client.RbacV1().ClusterRoleBindings().Get(ctx, rotationBinding, metav1.GetOptions{}); err != nil {
		d["unreadable"] = err.Error()
	} else {
		var subjects []string
		for _, s := range b.Subjects {
			subjects = append(subjects, s.Kind+" "+s.Name)
		}
		sort.Strings(subjects)
		d["subjects"] = strings.Join(subjects, ", ")
	}
	r.fact(judge.TypeSnapshot, "clusterrolebinding "+rotationBinding, d)
}

// components records which containers the control plane runs in: a change of one
// resets the controllers' clocks.
func (r *run) components(ctx context.Context) {
	out, err := r.target.ControlPlane.script(ctx, nil, `for c in kube-controller-manager kube-apiserver etcd kube-scheduler; do echo "$c $(crictl ps -q --name "^$c$" | head -n1 | cut -c1-13)"; done`)
	if err != nil {
		r.fact("LookFailed", "control plane", map[string]string{"why": err.Error()})
		return
	}
	for line := range strings.Lines(out) {
		if name, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			r.fact(judge.TypeController, name, map[string]string{"id": id})
		}
	}
}

// Heal puts right what a run left behind, from its journal alone. It may be
// called any number of times, by any process; it refuses a cluster that is not
// the one of the journal. say is told of every step.
func Heal(ctx context.Context, dir string, say func(string)) error {
	f, err := os.Open(filepath.Join(dir, "journal.jsonl"))
	if err != nil {
		return fmt.Errorf("healing: %w", err)
	}
	defer f.Close()
	records, err := ReadJournal(f)
	if err != nil {
		return fmt.Errorf("healing %s: %w", dir, err)
	}
	name := records[0].Cluster
	infos, err := cluster.List(ctx)
	if err != nil {
		return fmt.Errorf("healing: %w", err)
	}
	gone := true
	for _, i := range infos {
		gone = gone && (i.Name != name || len(i.Containers) == 0)
	}
	if gone {
		say(fmt.Sprintf("cluster %s is gone: nothing to heal", name))
		return nil
	}
	c, err := cluster.Open(ctx, name, "")
	if err != nil {
		return fmt.Errorf("healing: %w", err)
	}
	nodes := map[string]Node{}
	for _, n := range c.Nodes() {
		nodes[n.Name] = Node{n.Name, n}
	}
	var errs []error
	for _, kind := range []string{"undo", "repair", "clean"} {
		if kind == "clean" {
			if len(errs) > 0 {
				break // what is staged is needed for the next try
			}
			for _, t := range targetsOf(records) {
				if err := waitReady(ctx, nodes, t); err != nil {
					errs = append(errs, err)
				}
			}
			if len(errs) > 0 {
				break
			}
		}
		for _, s := range stepsOf(records, kind) {
			say(s.Desc + " on " + s.On)
			if _, err := runSteps(ctx, nodes, []Step{s}); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// targetsOf are the nodes that a journal repairs.
func targetsOf(records []Record) []string {
	seen := map[string]bool{}
	for _, s := range stepsOf(records, "repair") {
		seen[s.On] = true
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// waitReady waits until the API server says that a repaired node is Ready.
func waitReady(ctx context.Context, nodes map[string]Node, name string) error {
	for _, n := range nodes {
		if !strings.HasSuffix(n.Name, "-control-plane") {
			continue
		}
		if _, err := n.script(ctx, nil, admin+"wait --for=condition=Ready --timeout=60s node/"+name); err != nil {
			return fmt.Errorf("waiting for node %s to be Ready: %w", name, err)
		}
	}
	return nil
}
