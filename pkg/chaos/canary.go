package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// daemonSetCanary is the canary label of the pod that is never evicted.
const daemonSetCanary = "daemonset"

// labels are the values of the canary label of all workloads.
func (c Canaries) labels() []string {
	l := c.subjects()
	if c.DaemonSet {
		l = append(l, daemonSetCanary)
	}
	return l
}

// canaryNamespace is a run's own, so that what an earlier run left behind on a
// kept cluster cannot be mistaken for this run's.
func canaryNamespace(runID string) string { return "flatline-" + runID }

// createCanaries makes one Deployment of one pod for each toleration, and the
// DaemonSet. The pods prefer the target, so that a replacement can start
// elsewhere; the finite toleration is for unreachable only, since a kubelet that
// is restarted may be not-ready for a moment.
func createCanaries(ctx context.Context, c *cluster.Client, spec Canaries, runID, target, image string) error {
	ns := canaryNamespace(runID)
	if _, err := c.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", ns, err)
	}
	for i, label := range spec.subjects() {
		seconds := int64(time.Duration(spec.Tolerations[i]).Seconds())
		meta, template := canaryPod(label, target, image)
		template.Spec.Tolerations = []corev1.Toleration{
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: &seconds},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		}
		one := int32(1)
		d := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: meta.Labels}, Template: template}}
		if _, err := c.Deployments(ns).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating canary %s: %w", label, err)
		}
	}
	if spec.DaemonSet {
		meta, template := canaryPod(daemonSetCanary, target, image)
		template.Spec.Affinity = nil
		ds := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
			Template: template}}
		if _, err := c.DaemonSets(ns).Create(ctx, ds, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the canary DaemonSet: %w", err)
		}
	}
	return nil
}

func canaryPod(label, target, image string) (metav1.ObjectMeta, corev1.PodTemplateSpec) {
	meta := metav1.ObjectMeta{Name: "canary-" + label, Labels: map[string]string{observe.CanaryLabel: label}}
	grace, links := int64(1), false
	return meta, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "canary", Image: image, ImagePullPolicy: corev1.PullNever}},
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &links,
			EnableServiceLinks:            &links,
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
					Weight: 100,
					Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{target}}}},
				}},
			}},
		},
	}
}

// pauseImage is the image that every node has, since its sandboxes are made of
// it: it does nothing and ends at a signal, all that a canary must do.
func pauseImage(ctx context.Context, n Node) (string, error) {
	out, err := n.script(ctx, nil, "crictl images -o json")
	if err != nil {
		return "", fmt.Errorf("looking for the pause image on %s: %w", n.Name, err)
	}
	var list struct {
		Images []struct {
			RepoTags []string `json:"repoTags"`
		} `json:"images"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return "", fmt.Errorf("looking for the pause image on %s: %w", n.Name, err)
	}
	for _, i := range list.Images {
		for _, tag := range i.RepoTags {
			if name, _, _ := strings.Cut(tag[strings.LastIndex(tag, "/")+1:], ":"); name == "pause" {
				return tag, nil
			}
		}
	}
	return "", fmt.Errorf("looking for the pause image on %s: there is none", n.Name)
}

// deleteCanaries asks for the removal of the run's namespace; on a kept cluster it
// vanishes a little later.
func deleteCanaries(ctx context.Context, c *cluster.Client, runID string) error {
	err := c.Namespaces().Delete(ctx, canaryNamespace(runID), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the canaries: %w", err)
	}
	return nil
}
