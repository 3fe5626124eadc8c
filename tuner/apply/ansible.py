# SPDX-License-Identifier: MIT
"""A role of Ansible that brings a server's script there and runs it.

What is checked, saved, set and undone is the script's business, on one server as on many. The role
adds what many servers need: it does nothing where all is as it should be, and undoes the
configuration before when there is another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tuner import tierd
from tuner.apply.product import Product
from tuner.documents.document import render
from tuner.errors import one_line

ROLE = "roles/tiertune"
STATE = {"tierd": "/var/lib/tiertune", "linux": "/run/tiertune"}
"""Where a target's script notes what it has saved."""
PLAY = """\
- name: Memory tiering
  hosts: all
  gather_facts: false
  become: true
  roles:
    - role: tiertune
"""
DEFAULTS: dict[str, Any] = {
    "tiertune_state": "present",
    "tiertune_root": "",
    "tiertune_any_kernel": False,
}
OF_TIERD: dict[str, Any] = {
    "tiertune_service": "",
    "tiertune_options": "",
    "tiertune_tierd": "tierd",
}
META = """\
galaxy_info:
  author: tiertune
  description: A configuration of memory tiering, as tune apply has written it
  license: MIT
  min_ansible_version: "2.15"
dependencies: []
"""
HANDLERS = """\
- name: Restart tierd
  ansible.builtin.systemd_service:
    name: tierd@{{ tiertune_service }}
    state: restarted
  when: not tiertune_root
"""
MAIN = """\
- name: Look at what is asked for
  ansible.builtin.assert:
    that:
      - tiertune_state in ['present', 'absent']
@SERVICE@    fail_msg: >-
      tiertune_state: found '{{ tiertune_state }}', must be present or absent@ASKED@
    quiet: true

- name: Look whether a configuration is applied
  ansible.builtin.stat:
    path: "{{ tiertune_root }}{{ tiertune_saved }}"
  register: tiertune_applied

- name: Look at the script of before
  ansible.builtin.stat:
    path: "{{ tiertune_folder }}/{{ tiertune_script }}"
    checksum_algorithm: sha256
  register: tiertune_before

@OPTIONS@- name: Undo what is applied, or was by another script
  ansible.builtin.command:
    argv: "{{ ['sh', tiertune_folder ~ '/' ~ tiertune_script, 'undo'] + tiertune_words }}"
  environment: "{{ tiertune_environment }}"
  changed_when: true
  when:
    - tiertune_applied.stat.exists and tiertune_before.stat.exists
    - tiertune_state == 'absent' or tiertune_before.stat.checksum != tiertune_sha256@OTHERS@

- name: Bring and apply the configuration
  ansible.builtin.include_tasks: present.yml
  when: tiertune_state == 'present'

- name: Remove the script
  ansible.builtin.file:
    path: "{{ tiertune_folder }}/{{ tiertune_script }}"
    state: absent
  when: tiertune_state == 'absent'
"""
OPTIONS = "{{ tiertune_root }}/etc/tierd/{{ tiertune_service }}.env"
OF_SERVICES = {
    "SERVICE": """\
      - tiertune_service is match('^[A-Za-z0-9_.-]+$')
""",
    "ASKED": "; tiertune_service: found '{{ tiertune_service }}', must be the name of a service",
    "OPTIONS": """\
- name: Look at the service of before
  ansible.builtin.stat:
    path: "{{ tiertune_options_file }}"
  register: tiertune_options_before

- name: Look whether it is applied for this service
  ansible.builtin.assert:
    that: tiertune_options_before.stat.exists
    fail_msg: "it is applied for another service than {{ tiertune_service }}; end that first"
    quiet: true
  when: tiertune_applied.stat.exists

- name: Read the options of before
  ansible.builtin.slurp:
    path: "{{ tiertune_options_file }}"
  register: tiertune_options_read
  when: tiertune_applied.stat.exists

""",
    "OTHERS": " or tiertune_options_read.content | b64decode | trim != "
    "('TIERD_OPTIONS=' ~ tiertune_options) | trim",
}
"""What the tasks have more where a service is followed."""
COPY_TIERD = """\
- name: Copy tierd
  ansible.builtin.copy:
    src: "{{ tiertune_tierd }}"
    dest: "{{ tiertune_root }}/usr/local/bin/tierd"
    mode: "0755"
  notify: Restart tierd

"""
UNIT = """
- name: Copy the unit, which applies it whenever the server starts
  ansible.builtin.copy:
    src: "{{ tiertune_unit }}"
    dest: "{{ tiertune_root }}/etc/systemd/system/{{ tiertune_unit }}"
    mode: "0644"

- name: Enable the unit
  ansible.builtin.systemd_service:
    name: "{{ tiertune_unit }}"
    enabled: true
    daemon_reload: true
  when: not tiertune_root
"""
NO_UNIT = """
- name: Look at the unit
  ansible.builtin.stat:
    path: "{{ tiertune_root }}/etc/systemd/system/{{ tiertune_unit }}"
  register: tiertune_unit_before

- name: Disable the unit
  ansible.builtin.systemd_service:
    name: "{{ tiertune_unit }}"
    enabled: false
  when:
    - tiertune_state == 'absent' and not tiertune_root
    - tiertune_unit_before.stat.exists

- name: Remove the unit
  ansible.builtin.file:
    path: "{{ tiertune_root }}/etc/systemd/system/{{ tiertune_unit }}"
    state: absent
  when: tiertune_state == 'absent'
"""
PRESENT = """\
- name: Make the folder of the script
  ansible.builtin.file:
    path: "{{ tiertune_folder }}"
    state: directory
    mode: "0755"

- name: Copy the script
  ansible.builtin.copy:
    src: "{{ tiertune_script }}"
    dest: "{{ tiertune_folder }}/{{ tiertune_script }}"
    mode: "0755"

- name: Check whether the server has what it takes
  ansible.builtin.command:
    argv: "{{ ['sh', tiertune_folder ~ '/' ~ tiertune_script, 'check'] + tiertune_words }}"
  environment: "{{ tiertune_environment }}"
  changed_when: false

- name: Apply the configuration
  ansible.builtin.command:
    argv: "{{ ['sh', tiertune_folder ~ '/' ~ tiertune_script, 'apply'] + tiertune_words }}"
    creates: "{{ tiertune_root }}{{ tiertune_saved }}"
  environment: "{{ tiertune_environment }}"
"""


def product(under: Product, about: Sequence[str]) -> Product:
    """Of what a server gets by itself."""
    daemon = under.target == "tierd"
    script, text = under.script, under.files[under.script]
    unit = None if daemon else next(name for name in under.files if name != script)
    variables = {
        "tiertune_script": script,
        "tiertune_folder": "{{ tiertune_root }}/usr/local/sbin",  # where the unit has it
        **({"tiertune_unit": unit} if unit else {"tiertune_options_file": OPTIONS}),
        "tiertune_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "tiertune_saved": f"{STATE[under.target]}/{script.removesuffix('.sh')}",
        "tiertune_words": "{{ [tiertune_service, tiertune_options] }}" if daemon else [],
        "tiertune_environment": {
            "TIERTUNE_ROOT": "{{ tiertune_root }}",
            "TIERTUNE_ANY_KERNEL": "{{ '1' if tiertune_any_kernel else '' }}",
        },
    }
    main = MAIN
    for word, part in OF_SERVICES.items():
        main = main.replace(f"@{word}@", part if daemon else "")
    texts = {
        "tiertune.yml": PLAY,
        f"{ROLE}/defaults/main.yml": render(DEFAULTS | (OF_TIERD if daemon else {})),
        f"{ROLE}/meta/main.yml": META,
        f"{ROLE}/tasks/main.yml": main + ("" if daemon else NO_UNIT),
        f"{ROLE}/tasks/present.yml": COPY_TIERD + PRESENT if daemon else PRESENT + UNIT,
        f"{ROLE}/vars/main.yml": render(variables),
    }
    if daemon:
        texts[f"{ROLE}/handlers/main.yml"] = HANDLERS
    head = "\n".join(f"# {one_line(line)}" for line in about) + "\n---\n"
    files = {name: head + content for name, content in texts.items()}
    play = "ansible-playbook -i INVENTORY tiertune.yml"
    if daemon:
        play += " -e tiertune_service=NAME"
    options = ["options of tierd: -e \"tiertune_options='--fast-limit 16G'\""] if daemon else []
    return replace(
        under,
        target="ansible",
        needs=["ansible-core 2.15 or newer here", *(f"on each server: {n}" for n in under.needs)],
        files=files
        | {f"{ROLE}/files/{name}": under.files[name] for name in (script, unit) if name},
        use=[
            *([f"cp {tierd.find() or 'tierd'} {ROLE}/files/tierd"] if daemon else []),
            f"{play}, with your servers",
            *options,
        ],
        undo=[f"{play} -e tiertune_state=absent"],
        notes=[
            *under.notes,
            "one configuration of a server at a time; one that the role has applied before is "
            "undone first",
        ],
    )
