(* SPDX-License-Identifier: Apache-2.0

   The ledger's promise, checked by Coq. docs/proof.md says in plain words what is proved here, from what, and what is
   not. Sentences between quotation marks are those of docs/privacy.md; each stands beside the definition that states it.
   Run: make prove *)

From Coq Require Import List NArith Lia Bool.
Import ListNotations.
Open Scope N_scope.

(** * 1. One table: nested partitions *)

(* A step goes from a part to one part of a partition of it. A path of steps from the whole table names a part. *)
Definition step := (N * N)%type.                     (* (partition, part) *)
Definition path := list step.

(* What was asked of one table: the part, and the epsilon (in nano-epsilons) at which it was asked. *)
Definition log := list (path * N).

(* "When are two partitions the same? ... two queries of one partition put a row into the same part."
   A row is known here by the part in which each partition of each part puts it; None: "a row with another value is in
   no part". That it is a function says both "in every partition, x lies in at most one part" and "the same part". *)
Definition row := path -> N -> option N.
Definition below (s p : N) (r : row) : row := fun pi => r ((s, p) :: pi).

Fixpoint inside (r : row) (pi : path) : bool :=
  match pi with
  | [] => true
  | (s, p) :: rest => match r [] s with Some q => (q =? p) && inside (below s p r) rest | None => false end
  end.

Definition sum (l : list N) : N := fold_right N.add 0 l.
Definition largest (l : list N) : N := fold_right N.max 0 l.

(* "L_x, the sum of eps over the queries at nodes on x's path." *)
Definition met (r : row) (L : log) : N := sum (map (fun x => if inside r (fst x) then snd x else 0) L).

(* "v.spent = direct(v) + sum over partitions P of v of max_i part_i.spent": what was asked of a part itself, its
   partitions, the parts of one of them, and what was asked below one of these. *)
Definition direct (L : log) : N := sum (map (fun x => match fst x with [] => snd x | _ => 0 end) L).
Definition partitions (L : log) : list N :=
  nodup N.eq_dec (flat_map (fun x => match fst x with [] => [] | (s, _) :: _ => [s] end) L).
Definition parts (s : N) (L : log) : list N :=
  nodup N.eq_dec (flat_map (fun x => match fst x with (t, p) :: _ => if t =? s then [p] else [] | [] => [] end) L).
Definition under (s p : N) (L : log) : log :=
  flat_map (fun x => match fst x with
    | (t, q) :: rest => if (t =? s) && (q =? p) then [(rest, snd x)] else []
    | [] => [] end) L.

Fixpoint cost_to (depth : nat) (L : log) : N :=
  match depth with
  | O => direct L
  | S less => direct L
      + sum (map (fun s => largest (map (fun p => cost_to less (under s p L)) (parts s L))) (partitions L))
  end.
Definition depth (L : log) : nat := fold_right Nat.max O (map (fun x => length (fst x)) L).
Definition cost (L : log) : N := cost_to (depth L) L.

(** ** Sums *)

Lemma in_largest : forall l x, In x l -> x <= largest l.
Proof. induction l; simpl; intros; [tauto|]. destruct H; subst; [lia|]. apply IHl in H. lia. Qed.

Lemma sum_le : forall (A : Type) (f g : A -> N) l,
  (forall x, In x l -> f x <= g x) -> sum (map f l) <= sum (map g l).
Proof.
  induction l; simpl; intros; [lia|]. assert (f a <= g a) by auto.
  assert (sum (map f l) <= sum (map g l)) by (apply IHl; auto). lia.
Qed.

Lemma sum_same : forall (A : Type) (f g : A -> N) l, (forall x, In x l -> f x = g x) -> sum (map f l) = sum (map g l).
Proof. induction l; simpl; intros; [reflexivity|]. f_equal; auto. Qed.

Lemma sum_zero : forall (A : Type) (f : A -> N) l, (forall x, In x l -> f x = 0) -> sum (map f l) = 0.
Proof. induction l; simpl; intros; auto. rewrite H, IHl; auto. Qed.

Lemma sum_plus : forall (A : Type) (f g : A -> N) l,
  sum (map (fun x => f x + g x) l) = sum (map f l) + sum (map g l).
Proof. induction l; simpl; lia. Qed.

Lemma sum_app : forall a b, sum (a ++ b) = sum a + sum b.
Proof. induction a; simpl; intros; [reflexivity|]. rewrite IHa. lia. Qed.

(** ** A row meets no more than the cost *)

Definition deep (n : nat) (L : log) := forall pi e, In (pi, e) L -> (length pi <= n)%nat.

Lemma depth_deep : forall L, deep (depth L) L.
Proof.
  induction L as [|[q f] L IH]; intros pi e I; [destruct I|]. unfold depth in *. simpl.
  destruct I as [I|I]; [inversion I; subst; lia|]. apply IH in I. lia.
Qed.

Lemma under_deep : forall n s p L, deep (S n) L -> deep n (under s p L).
Proof.
  unfold deep, under. intros n s p L D pi e I. apply in_flat_map in I. destruct I as [[q f] [I X]]. simpl in X.
  destruct q as [|[t u] rest]; [destruct X|]. destruct ((t =? s) && (u =? p)); [|destruct X].
  destruct X as [X|[]]. inversion X; subst. apply D in I. simpl in I. lia.
Qed.

(* What a row meets below one partition. *)
Definition met_in (r : row) (s : N) (L : log) : N :=
  match r [] s with Some p => met (below s p r) (under s p L) | None => 0 end.

Lemma met_in_cons : forall r s x L, met_in r s (x :: L) =
  (match fst x with (t, _) :: _ => if t =? s then (if inside r (fst x) then snd x else 0) else 0 | [] => 0 end)
  + met_in r s L.
Proof.
  intros r s [[|[t q] pi] e] L; unfold met_in, under; simpl.
  - destruct (r [] s); reflexivity.
  - destruct (N.eqb_spec t s) as [->|Differ].
    + destruct (r [] s) as [p|] eqn:R; simpl; [|reflexivity].
      destruct (N.eqb_spec q p) as [->|Other]; simpl.
      * rewrite ?N.eqb_refl. reflexivity.
      * destruct (N.eqb_spec p q); [congruence|]. reflexivity.
    + destruct (r [] s); reflexivity.
Qed.

Lemma pick : forall S t v, NoDup S -> In t S -> sum (map (fun s => if t =? s then v else 0) S) = v.
Proof.
  induction S; simpl; intros t v D I; [tauto|]. inversion D; subst. destruct I as [->|I].
  - rewrite N.eqb_refl. rewrite sum_zero; [lia|]. intros s Hs. destruct (N.eqb_spec t s); subst; tauto.
  - destruct (N.eqb_spec t a); subst; [tauto|]. rewrite IHS; auto.
Qed.

Lemma regroup : forall r L S, NoDup S -> (forall s p pi e, In ((s, p) :: pi, e) L -> In s S) ->
  met r L = direct L + sum (map (fun s => met_in r s L) S).
Proof.
  induction L as [|x L IH]; intros S D C.
  - cbn. rewrite sum_zero; auto. intros. unfold met_in. destruct (r [] x); reflexivity.
  - change (met r (x :: L)) with ((if inside r (fst x) then snd x else 0) + met r L).
    change (direct (x :: L)) with ((match fst x with [] => snd x | _ => 0 end) + direct L).
    rewrite (sum_same _ _ (fun s =>
      (match fst x with (t, _) :: _ => if t =? s then (if inside r (fst x) then snd x else 0) else 0 | [] => 0 end)
      + met_in r s L)) by (intros; apply met_in_cons).
    rewrite sum_plus, (IH S D) by (intros; eapply C; right; eauto).
    destruct x as [[|[t q] pi] e]; cbn [fst snd].
    + rewrite (sum_zero _ (fun _ => 0)) by auto. change (inside r []) with true. cbv iota. lia.
    + rewrite (pick S t) by (auto; eapply C; left; reflexivity). lia.
Qed.

Lemma partitions_cover : forall L s p pi e, In ((s, p) :: pi, e) L -> In s (partitions L).
Proof. intros. apply nodup_In, in_flat_map. exists ((s, p) :: pi, e). split; simpl; auto. Qed.

Lemma under_nothing : forall s p L, ~ In p (parts s L) -> under s p L = [].
Proof.
  intros s p L H. destruct (under s p L) as [|[pi e] rest] eqn:E; auto. exfalso. apply H.
  assert (I : In (pi, e) (under s p L)) by (rewrite E; left; reflexivity).
  unfold under in I. apply in_flat_map in I. destruct I as [[[|[t q] pi'] f] [I X]]; simpl in X; [tauto|].
  destruct (N.eqb_spec t s), (N.eqb_spec q p); simpl in X; try tauto. subst.
  apply nodup_In, in_flat_map. exists ((s, p) :: pi', f). split; auto. simpl. rewrite N.eqb_refl. simpl; auto.
Qed.

Lemma met_below_cost_to : forall n L r, deep n L -> met r L <= cost_to n L.
Proof.
  induction n; intros L r D.
  - simpl. unfold met, direct. apply sum_le. intros [[|x pi] e] I; simpl; [lia|]. apply D in I. simpl in I. lia.
  - simpl. rewrite (regroup r L (partitions L)) by (try apply NoDup_nodup; eauto using partitions_cover).
    apply N.add_le_mono_l. apply sum_le. intros s Hs. unfold met_in. destruct (r [] s) as [p|]; [|lia].
    destruct (in_dec N.eq_dec p (parts s L)) as [I|I].
    + transitivity (cost_to n (under s p L)); [apply IHn, under_deep; auto|].
      apply in_largest, in_map_iff. exists p; auto.
    + rewrite under_nothing by auto. unfold met; simpl. lia.
Qed.

(* "the charges on x's path at or below v are ... <= v.spent. At the root, L_x <= root.spent." *)
Theorem row_below_cost : forall r L, met r L <= cost L.
Proof. intros. apply met_below_cost_to, depth_deep. Qed.

(** ** "The rule is tight if every combination of parts is possible" *)

Definition better (f : N -> N) (p : N) (best : option N) : option N :=
  match best with Some q => if f p <=? f q then Some q else Some p | None => Some p end.
Definition argmax (f : N -> N) (l : list N) : option N := fold_right (better f) None l.

Lemma argmax_largest : forall f l, largest (map f l) = match argmax f l with Some p => f p | None => 0 end.
Proof.
  induction l as [|p l IH]; simpl; [reflexivity|]. rewrite IH.
  destruct (argmax f l) as [q|]; simpl; [|lia]. destruct (N.leb_spec (f p) (f q)); lia.
Qed.

Lemma argmax_none : forall f l, argmax f l = None -> l = [].
Proof.
  destruct l as [|p l]; intros H; [reflexivity|]. change (better f p (argmax f l) = None) in H. unfold better in H.
  destruct (argmax f l) as [q|]; [destruct (f p <=? f q)|]; discriminate H.
Qed.

(* The row that lies, in every partition, in the part that cost most. *)
Fixpoint worst (n : nat) (L : log) : row :=
  match n with
  | O => fun _ _ => None
  | S less => fun pi s => match pi with
      | [] => argmax (fun p => cost_to less (under s p L)) (parts s L)
      | (t, p) :: rest => worst less (under t p L) rest s
      end
  end.

Lemma worst_meets_cost : forall n L, deep n L -> met (worst n L) L = cost_to n L.
Proof.
  induction n; intros L D.
  - simpl. unfold met, direct. apply sum_same. intros [[|x pi] e] I; simpl; [lia|]. apply D in I. simpl in I. lia.
  - rewrite (regroup _ L (partitions L)) by (try apply NoDup_nodup; eauto using partitions_cover).
    cbn [cost_to]. f_equal. apply sum_same. intros s _. unfold met_in. rewrite argmax_largest. cbn [worst].
    destruct (argmax (fun p => cost_to n (under s p L)) (parts s L)) as [p|]; [|reflexivity].
    change (below s p (worst (S n) L)) with (worst n (under s p L)). apply IHn, under_deep; auto.
Qed.

Theorem attained : forall L, exists r, met r L = cost L.
Proof. intros. exists (worst (depth L) L). apply worst_meets_cost, depth_deep. Qed.

Lemma met_app : forall r L M, met r (L ++ M) = met r L + met r M.
Proof. intros. unfold met. rewrite map_app. apply sum_app. Qed.

Lemma cost_nothing : cost [] = 0. Proof. reflexivity. Qed.

(* "The bound depends only on the set of answered queries, so their order does not matter." *)
Theorem order_does_not_matter : forall L M, (forall r, met r L = met r M) -> cost L = cost M.
Proof.
  intros L M H. destruct (attained L) as [r R], (attained M) as [s S].
  pose proof (row_below_cost r M). pose proof (row_below_cost s L). rewrite <- R, <- S, H in *. rewrite H in *. lia.
Qed.

(** * 2. Versions, tables, cohorts, and people with several rows *)

(* "A question names the version that answers it", and "the root of a part's identity is (table, version)". Where
   people come, a question may name one cohort of them, with that cohort's own version; None: everybody. *)
Record place := At { cohort : option N; table : N; version : N }.
Definition place_eq : forall a b : place, {a = b} + {a <> b}.
Proof. decide equality; try apply N.eq_dec. decide equality. apply N.eq_dec. Defined.

(* One line of the whole ledger: who asked which part of which place at which epsilon. *)
Record line := Line { who : N; where_ : place; part : path; epsilon : N }.
Definition ledger := list line.
Definition here (p : place) (L : ledger) : log :=
  flat_map (fun x => if place_eq (where_ x) p then [(part x, epsilon x)] else []) L.
Definition places (L : ledger) : list place := nodup place_eq (map where_ L).

Definition open_to_all (p : place) : bool := match cohort p with None => true | Some _ => false end.
Definition open_to (c : N) (p : place) : bool := match cohort p with Some d => d =? c | None => false end.
Definition cohorts (L : ledger) : list N :=
  nodup N.eq_dec (flat_map (fun p => match cohort p with Some c => [c] | None => [] end) (places L)).

(* "the loss is at most the sum over versions of root_v.spent"; "loss of a unit of c <= sum over versions of what was
   asked outside of cohorts + sum over v_c of the cost below (c, v_c); over all units: the maximum over c." *)
Definition costs (L : ledger) (P : list place) : N := sum (map (fun p => cost (here p L)) P).
Definition spent (L : ledger) : N :=
  costs L (filter open_to_all (places L))
  + largest (map (fun c => costs L (filter (open_to c) (places L))) (cohorts L)).

(* A person of the cohort [home] has rows in places that are open to all, and in those of that cohort alone. *)
Definition visits (home : N) (p : place) : bool := open_to_all p || open_to home p.

Lemma here_nothing : forall L p, ~ In p (places L) -> here p L = [].
Proof.
  intros L p H. destruct (here p L) as [|[pi e] rest] eqn:E; auto. exfalso. apply H.
  assert (I : In (pi, e) (here p L)) by (rewrite E; left; reflexivity).
  unfold here in I. apply in_flat_map in I. destruct I as [x [I X]]. destruct (place_eq (where_ x) p); [|destruct X].
  apply nodup_In. rewrite <- e0. apply in_map. exact I.
Qed.

Lemma sum_within : forall (f : place -> N) P Q, NoDup P -> (forall p, In p P -> In p Q \/ f p = 0) ->
  sum (map f P) <= sum (map f Q).
Proof.
  induction P as [|p P IH]; intros Q D H; simpl; [lia|]. inversion D; subst.
  destruct (H p (or_introl eq_refl)) as [I|Z].
  - destruct (in_split _ _ I) as [A [B ->]].
    assert (sum (map f P) <= sum (map f (A ++ B))) as W.
    { apply IH; auto. intros q Hq. destruct (H q (or_intror Hq)) as [J|J]; auto. left.
      apply in_app_or in J. apply in_or_app. destruct J as [J|[J|J]]; auto. subst. contradiction. }
    rewrite map_app, sum_app in *. simpl. lia.
  - assert (sum (map f P) <= sum (map f Q)) by (apply IH; auto; intros; apply H; right; auto). lia.
Qed.

Lemma sum_filter : forall (f : place -> N) (g h : place -> bool) P, (forall p, g p = true -> h p = false) ->
  sum (map f (filter (fun p => g p || h p) P)) = sum (map f (filter g P)) + sum (map f (filter h P)).
Proof.
  intros f g h P X. induction P as [|p P IH]; simpl; [reflexivity|]. specialize (X p).
  destruct (g p), (h p); cbn [orb filter map]; try (specialize (X eq_refl); discriminate X); simpl; lia.
Qed.

Lemma visited : forall L home, costs L (filter (visits home) (places L)) =
  costs L (filter open_to_all (places L)) + costs L (filter (open_to home) (places L)).
Proof. intros. apply sum_filter. intros p. unfold open_to_all, open_to. destruct (cohort p); congruence. Qed.

Lemma costs_below_spent : forall L home P, NoDup P -> (forall p, In p P -> visits home p = true) ->
  costs L P <= spent L.
Proof.
  intros L home P D V. transitivity (costs L (filter (visits home) (places L))).
  - apply sum_within; auto. intros p I. destruct (in_dec place_eq p (places L)) as [J|J].
    + left. apply filter_In. auto.
    + right. rewrite here_nothing by auto. reflexivity.
  - rewrite visited. unfold spent. apply N.add_le_mono_l.
    destruct (in_dec N.eq_dec home (cohorts L)) as [I|I].
    + apply in_largest, in_map_iff. exists home; auto.
    + replace (filter (open_to home) (places L)) with (@nil place); [apply N.le_0_l|].
      symmetry. destruct (filter (open_to home) (places L)) as [|p rest] eqn:E; auto. exfalso. apply I.
      assert (J : In p (filter (open_to home) (places L))) by (rewrite E; left; reflexivity).
      apply filter_In in J. destruct J as [J O]. apply nodup_In, in_flat_map. exists p. split; auto.
      unfold open_to in O. destruct (cohort p); [|discriminate]. apply N.eqb_eq in O. left. auto.
Qed.

(* What a person meets who has one row in each of some places. *)
Definition person_meets (rows : place -> row) (P : list place) (L : ledger) : N :=
  sum (map (fun p => met (rows p) (here p L)) P).

Theorem person_below_spent : forall L home rows P, NoDup P -> (forall p, In p P -> visits home p = true) ->
  person_meets rows P L <= spent L.
Proof.
  intros. transitivity (costs L P); [|eapply costs_below_spent; eauto].
  apply sum_le. intros. apply row_below_cost.
Qed.

(* The bound is tight here, too: somebody of the cohort that cost most, with the worst row in each place. *)
Theorem spent_attained : forall L, exists home rows P,
  NoDup P /\ (forall p, In p P -> visits home p = true) /\ person_meets rows P L = spent L.
Proof.
  intros. set (f := fun c => costs L (filter (open_to c) (places L))).
  set (home := match argmax f (cohorts L) with Some c => c | None => 0 end).
  exists home, (fun p => worst (depth (here p L)) (here p L)), (filter (visits home) (places L)).
  split; [apply NoDup_filter, NoDup_nodup|]. split; [intros p I; apply filter_In in I; tauto|].
  unfold person_meets. rewrite (sum_same _ _ (fun p => cost (here p L)))
    by (intros; apply worst_meets_cost, depth_deep).
  change (costs L (filter (visits home) (places L)) = spent L). rewrite visited. unfold spent. f_equal.
  change (f home = largest (map f (cohorts L))). rewrite argmax_largest. unfold home.
  destruct (argmax f (cohorts L)) eqn:A; [reflexivity|].
  pose proof (argmax_none _ _ A) as E.
  unfold f, costs. replace (filter (open_to 0) (places L)) with (@nil place); [reflexivity|]. symmetry.
  destruct (filter (open_to 0) (places L)) as [|p rest] eqn:F; auto. exfalso.
  assert (J : In p (filter (open_to 0) (places L))) by (rewrite F; left; reflexivity).
  apply filter_In in J. destruct J as [J O]. unfold open_to in O. destruct (cohort p) as [c|] eqn:C; [|discriminate].
  assert (In c (cohorts L)) as K by (apply nodup_In, in_flat_map; exists p; rewrite C; simpl; auto).
  rewrite E in K. destruct K.
Qed.

(** * 3. Analysts, and the cap over them *)

Definition of (a : N) (L : ledger) : ledger := filter (fun x => who x =? a) L.

Lemma here_apart : forall f p r L,
  met r (here p L) = met r (here p (filter f L)) + met r (here p (filter (fun x => negb (f x)) L)).
Proof.
  induction L as [|x L IH]; [reflexivity|]. unfold here in *. cbn [flat_map filter]. rewrite met_app, IH.
  destruct (f x); cbn [negb flat_map]; rewrite met_app; lia.
Qed.

Lemma spent_apart : forall f L, spent L <= spent (filter f L) + spent (filter (fun x => negb (f x)) L).
Proof.
  intros. destruct (spent_attained L) as [home [rows [P [D [V E]]]]].
  pose proof (person_below_spent (filter f L) home rows P D V).
  pose proof (person_below_spent (filter (fun x => negb (f x)) L) home rows P D V).
  assert (person_meets rows P L = person_meets rows P (filter f L) + person_meets rows P (filter (fun x => negb (f x)) L)).
  { unfold person_meets. rewrite <- sum_plus. apply sum_same. intros. apply here_apart. }
  lia.
Qed.

(* "root_union.spent <= sum_a root_a.spent ... So both rules are sound": "Colluding analysts see a joint transcript of
   cost sum_a root_a.spent", and the union of what all asked costs no more than that sum. *)
Theorem union_below_sum : forall A L, NoDup A -> (forall x, In x L -> In (who x) A) ->
  spent L <= sum (map (fun a => spent (of a L)) A).
Proof.
  induction A as [|a A IH]; intros L D C; simpl.
  - destruct L as [|x L]; [reflexivity|]. destruct (C x (or_introl eq_refl)).
  - inversion D; subst. transitivity (spent (of a L) + spent (filter (fun x => negb (who x =? a)) L));
      [apply spent_apart|]. apply N.add_le_mono_l. etransitivity; [apply IH; auto|].
    + intros x I. apply filter_In in I. destruct I as [I N]. destruct (C x I) as [E|E]; auto. subst.
      rewrite N.eqb_refl in N. discriminate.
    + apply sum_le. intros b J. replace (of b (filter (fun x => negb (who x =? a)) L)) with (of b L); [lia|].
      unfold of. clear - J H1. induction L as [|x L IH]; [reflexivity|]. simpl.
      destruct (N.eqb_spec (who x) a); simpl; rewrite IH; auto.
      destruct (N.eqb_spec (who x) b); auto. congruence.
Qed.

(** * 4. The transcript of an adaptive analyst *)

From Coq Require Import Reals Lra.
Open Scope R_scope.

Definition real (n : N) : R := IZR (Z.of_N n).
Lemma real_plus : forall a b, real (a + b) = real a + real b.
Proof. intros. unfold real. rewrite N2Z.inj_add. apply plus_IZR. Qed.
Lemma real_le : forall a b, (a <= b)%N -> real a <= real b.
Proof. intros. apply IZR_le. lia. Qed.

Section Transcript.
  Variables data answer : Type.
  Definition request := list line.                   (* one request asks several parts, at one epsilon each *)
  Definition transcript := list (request * option answer).   (* newest first; None: the request was refused *)

  (* The requests that were answered, as the ledger has them. *)
  Fixpoint answered (h : transcript) : ledger :=
    match h with [] => [] | (q, Some _) :: rest => q ++ answered rest | (_, None) :: rest => answered rest end.

  (* "The analyst's choices depend only on the transcript", and "a refusal depends on the ledger only". *)
  Variable chooses : transcript -> request -> R.
  Variable lets : transcript -> request -> bool.
  Variable law : data -> transcript -> request -> answer -> R.   (* how likely an answer is, given the past *)
  Hypothesis chooses_positive : forall h q, 0 <= chooses h q.
  Hypothesis law_positive : forall d h q a, 0 <= law d h q a.

  (* "a filter that refuses when the sum would exceed B" *)
  Variable B : N.
  Hypothesis filter_holds : forall h q, lets h q = true -> (spent (q ++ answered h) <= B)%N.

  (* [differ d d' p r]: one of the tables d and d' has the row r at the place p, the other lacks it, and all else is the
     same. [most p] rows of a unit at most are at a place ("a privacy unit with at most k rows is distance k"; twice as
     many "if a row is substituted"), and each is protected at epsilon / most: "so everything costs k x".
     What each verb proves of itself, row by row: it moves by that if the row is in the part, and "an answer at a node
     without x has the same distribution under D and D'". *)
  Variable differ : data -> data -> place -> row -> Prop.
  Variable most : place -> nat.
  Hypothesis most_positive : forall p, (0 < most p)%nat.
  Definition nano : R := / 1000000000.
  Definition share (p : place) (r : row) (L : ledger) : R := nano * real (met r (here p L)) / INR (most p).
  Hypothesis verb : forall d d' p r, differ d d' p r ->
    forall h q a, law d h q a <= exp (share p r q) * law d' h q a.

  (* From d to d' by adding or removing rows one at a time. *)
  Inductive changes : data -> list (place * row) -> data -> Prop :=
  | no_change : forall d, changes d [] d
  | one_more : forall d d1 d' p r rest, differ d d1 p r -> changes d1 rest d' -> changes d ((p, r) :: rest) d'.

  (* The probability of a transcript: "a product of conditional probabilities". *)
  Definition replies (d : data) (h : transcript) (q : request) (given : option answer) : R :=
    match given with
    | Some a => if lets h q then law d h q a else 0
    | None => if lets h q then 0 else 1
    end.
  Fixpoint chance (d : data) (t : transcript) : R :=
    match t with [] => 1 | (q, given) :: h => chooses h q * replies d h q given * chance d h end.

  Definition loss (rows : list (place * row)) (L : ledger) : R :=
    fold_right Rplus 0 (map (fun x => share (fst x) (snd x) L) rows).

  Lemma replies_positive : forall d h q given, 0 <= replies d h q given.
  Proof. intros. unfold replies. destruct given, (lets h q); auto; lra. Qed.
  Lemma chance_positive : forall d t, 0 <= chance d t.
  Proof.
    induction t as [|[q given] h IH]; simpl; [lra|]. apply Rmult_le_pos; auto. apply Rmult_le_pos; auto.
    apply replies_positive.
  Qed.

  Lemma share_app : forall p r q L, share p r (q ++ L) = share p r q + share p r L.
  Proof.
    intros. unfold share. replace (here p (q ++ L)) with (here p q ++ here p L).
    - rewrite met_app, real_plus. field. apply not_0_INR. specialize (most_positive p). lia.
    - unfold here. symmetry. apply flat_map_app.
  Qed.

  Lemma answers_move : forall d d' rows, changes d rows d' ->
    forall h q a, law d h q a <= exp (loss rows q) * law d' h q a.
  Proof.
    induction 1 as [d|d d1 d' p r rest D C IH]; intros h q a; unfold loss in *; simpl.
    - rewrite exp_0. lra.
    - rewrite exp_plus. eapply Rle_trans; [apply (verb _ _ _ _ D)|]. rewrite Rmult_assoc.
      apply Rmult_le_compat_l; [left; apply exp_pos|]. apply IH.
  Qed.

  Lemma loss_app : forall rows q L, loss rows (q ++ L) = loss rows q + loss rows L.
  Proof.
    induction rows as [|[p r] rest IH]; intros; unfold loss in *; simpl; [lra|]. rewrite share_app, IH. lra.
  Qed.

  Lemma loss_nothing : forall rows, loss rows [] = 0.
  Proof.
    induction rows as [|[p r] rest IH]; unfold loss in *; simpl; [reflexivity|]. rewrite IH. unfold share, met, real.
    simpl. unfold Rdiv. ring.
  Qed.

  (* "The log-ratio is therefore at most sum eps_t. The bound holds for each transcript separately." *)
  Theorem transcript_moves : forall d d' rows, changes d rows d' ->
    forall t, chance d t <= exp (loss rows (answered t)) * chance d' t.
  Proof.
    intros d d' rows C. induction t as [|[q given] h IH]; cbn [answered chance].
    - rewrite loss_nothing, exp_0. lra.
    - assert (chooses h q * replies d h q given * chance d h <=
        chooses h q * (exp (match given with Some _ => loss rows q | None => 0 end) * replies d' h q given)
        * (exp (loss rows (answered h)) * chance d' h)) as M.
      { apply Rmult_le_compat; auto using chance_positive.
        - apply Rmult_le_pos; auto. apply replies_positive.
        - apply Rmult_le_compat_l; auto. unfold replies. destruct given, (lets h q).
          + apply answers_move; auto.
          + rewrite Rmult_0_r. lra.
          + rewrite Rmult_0_r. lra.
          + rewrite exp_0. lra. }
      eapply Rle_trans; [exact M|]. destruct given.
      + rewrite loss_app, exp_plus. apply Req_le. ring.
      + rewrite exp_0. apply Req_le. ring.
  Qed.

  Lemma possible_within : forall d t, chance d t <> 0 -> (spent (answered t) <= B)%N \/ answered t = [].
  Proof.
    induction t as [|[q given] h IH]; cbn [answered chance]; intros P; auto.
    destruct given as [a|].
    - left. apply filter_holds. destruct (lets h q) eqn:E; auto. exfalso. apply P. unfold replies. rewrite E. ring.
    - apply IH. intros Z. apply P. rewrite Z. ring.
  Qed.

  (* A unit: at each of some places at most [most] rows, and of cohorts' places only those of its home. *)
  Variable home : N.
  Variable P : list place.
  Variable rows : place -> list row.
  Hypothesis once : NoDup P.
  Hypothesis own : forall p, In p P -> visits home p = true.
  Hypothesis few : forall p, (length (rows p) <= most p)%nat.
  Definition unit_rows : list (place * row) := flat_map (fun p => map (pair p) (rows p)) P.

  Lemma share_sum : forall p L l, fold_right Rplus 0 (map (fun r => share p r L) l)
    <= nano * real (cost (here p L)) * (INR (length l) / INR (most p)).
  Proof.
    intros p L l. assert (0 < INR (most p)) as K by (apply lt_0_INR; specialize (most_positive p); lia).
    induction l as [|r l IH].
    - simpl. unfold Rdiv. rewrite Rmult_0_l, Rmult_0_r. lra.
    - cbn [map fold_right]. replace (INR (length (r :: l))) with (1 + INR (length l))
        by (cbn [length]; rewrite S_INR; ring).
      assert (share p r L <= nano * real (cost (here p L)) / INR (most p)) as One.
      { unfold share. unfold Rdiv. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|].
        apply Rmult_le_compat_l; [unfold nano; lra|]. apply real_le, row_below_cost. }
      unfold Rdiv in *. lra.
  Qed.

  Lemma loss_list : forall Q L, (forall p, In p Q -> In p P) ->
    loss (flat_map (fun p => map (pair p) (rows p)) Q) L <= nano * real (costs L Q).
  Proof.
    induction Q as [|p Q IH]; intros L S.
    - unfold loss, costs, real. simpl. lra.
    - unfold loss in *. cbn [flat_map]. rewrite map_app, fold_right_app.
      assert (forall l z, fold_right Rplus z l = fold_right Rplus 0 l + z) as Z
        by (induction l as [|y l J]; intros; simpl; [lra|rewrite J; lra]).
      rewrite Z, map_map. cbn [fst snd].
      change (costs L (p :: Q)) with (cost (here p L) + costs L Q)%N. rewrite real_plus, Rmult_plus_distr_l.
      apply Rplus_le_compat; [|apply IH; intros; apply S; right; auto].
      eapply Rle_trans; [apply share_sum|]. rewrite <- (Rmult_1_r (nano * real (cost (here p L)))) at 2.
      assert (0 < INR (most p)) as K by (apply lt_0_INR; specialize (most_positive p); lia).
      apply Rmult_le_compat_l.
      + apply Rmult_le_pos; [unfold nano; lra|]. apply IZR_le. lia.
      + apply Rmult_le_reg_r with (INR (most p)); auto. unfold Rdiv.
        rewrite Rmult_assoc, Rinv_l, Rmult_1_r, Rmult_1_l by lra. apply le_INR. apply few.
  Qed.

  (* "For D' = D + x, any analyst and any order of requests: |ln P(transcript|D)/P(transcript|D')| <= root.spent <= B",
     for a whole unit in the place of x. Whether the unit came or went does not matter: [changes] goes both ways if
     [differ] does. *)
  Theorem promise : forall d d', changes d unit_rows d' -> forall t, chance d t <= exp (nano * real B) * chance d' t.
  Proof.
    intros d d' C t. destruct (Req_dec (chance d t) 0) as [Z|Z].
    - rewrite Z. apply Rmult_le_pos; [left; apply exp_pos|apply chance_positive].
    - eapply Rle_trans; [apply transcript_moves; eauto|]. apply Rmult_le_compat_r; [apply chance_positive|].
      assert (loss unit_rows (answered t) <= nano * real B) as W.
      { destruct (possible_within d t Z) as [I| ->].
        - eapply Rle_trans; [apply loss_list; auto|]. apply Rmult_le_compat_l; [unfold nano; lra|].
          apply real_le. eapply N.le_trans; [apply (costs_below_spent _ home); auto|exact I].
        - rewrite loss_nothing. apply Rmult_le_pos; [unfold nano; lra|]. apply IZR_le. lia. }
      destruct (Rle_lt_or_eq_dec _ _ W) as [H|H]; [left; apply exp_increasing; auto|rewrite H; lra].
  Qed.

  (* The same for each set of transcripts that somebody may look out for. *)
  Theorem promise_of_sets : forall d d', changes d unit_rows d' -> forall S : list transcript,
    fold_right Rplus 0 (map (chance d) S) <= exp (nano * real B) * fold_right Rplus 0 (map (chance d') S).
  Proof.
    intros d d' C. induction S as [|t S IH]; simpl; [lra|].
    pose proof (promise d d' C t). rewrite Rmult_plus_distr_l. lra.
  Qed.
End Transcript.

(** * 5. The product's two rules for the cap are such filters *)

(* "The cap may instead be the rule ... on the union of all analysts' trees": spent itself. Or the sum over analysts. *)
Definition by_union (B : N) (L : ledger) : bool := (spent L <=? B)%N.
Definition analysts (L : ledger) : list N := nodup N.eq_dec (map who L).
Definition spent_by_sum (L : ledger) : N := sum (map (fun a => spent (of a L)) (analysts L)).
Definition by_sum (B : N) (L : ledger) : bool := (spent_by_sum L <=? B)%N.

Theorem union_is_a_filter : forall B L, by_union B L = true -> (spent L <= B)%N.
Proof. intros B L. apply N.leb_le. Qed.
Theorem sum_is_a_filter : forall B L, by_sum B L = true -> (spent L <= B)%N.
Proof.
  intros B L H. apply N.leb_le in H. etransitivity; [|exact H]. apply union_below_sum; [apply NoDup_nodup|].
  intros x I. apply nodup_In, in_map. exact I.
Qed.

(* What is assumed, if anything, beyond the rules of Coq itself. *)
Print Assumptions row_below_cost.
Print Assumptions attained.
Print Assumptions order_does_not_matter.
Print Assumptions person_below_spent.
Print Assumptions spent_attained.
Print Assumptions union_below_sum.
Print Assumptions union_is_a_filter.
Print Assumptions sum_is_a_filter.
Print Assumptions transcript_moves.
Print Assumptions promise.
Print Assumptions promise_of_sets.
